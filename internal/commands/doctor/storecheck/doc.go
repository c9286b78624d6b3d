// Package storecheck has the checks of keyserver-operator doctor for a database and its data directory. They only read.
//
// Checks without a database are in package doctor, so that keyserverctl does not contain the database code.
//
// It may import doctor, crypto/keyring, crypto/rowmac, engine/bootstrap, platform/fault and store/sqlstore.
package storecheck
