// Package diagnose has the commands doctor and support-bundle of keyserverctl: their flags and their session at a key
// server. Package doctor has the checks. Package supportbundle has the content of a bundle.
//
// It may import access, cluster, ctl/login, doctor, supportbundle, program, platform/urltext and platform/version.
package diagnose
