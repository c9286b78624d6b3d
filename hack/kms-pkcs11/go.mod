module github.com/keyserver-operator/keyserver-operator/hack/kms-pkcs11

go 1.26.0

require (
	github.com/ThalesGroup/crypto11 v1.5.0
	github.com/spf13/cobra v1.10.2
	google.golang.org/grpc v1.83.2
	k8s.io/kms v0.37.2
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/miekg/pkcs11 v1.1.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	github.com/thales-e-security/pool v0.0.2 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
)
