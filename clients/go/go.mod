module github.com/keyserver-operator/keyserver-operator/clients/go

go 1.26.0

require (
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3
	github.com/google/go-cmp v0.7.0
	github.com/segmentio/asm v1.2.1
	golang.org/x/mod v0.42.0
	golang.org/x/sync v0.24.0
	pgregory.net/rapid v1.3.0
)

require golang.org/x/sys v0.49.0 // indirect
