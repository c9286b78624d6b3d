// Package storecheck has the checks of keyserver-operator doctor for a database and its data directory. They read only.
//
// The checks that need no database are in package doctor, so that keyserverctl does not link the store.
//
// It may import doctor, crypto/keyring, crypto/rowmac, engine/bootstrap, platform/fault and store/sqlstore.
package storecheck
