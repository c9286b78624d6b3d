// Package diagnose has the commands doctor and support-bundle of keyserverctl: their flags, and the session for their
// requests to a key server. The checks are in package doctor, and the contents of a bundle in supportbundle.
//
// It may import access, cluster, ctl/login, doctor, supportbundle, program, platform/urltext and platform/version.
package diagnose
