#!/usr/bin/env bash
# Usage: test/thirdparty/c2sp-witness/build.sh PATH
#
# Builds the witness into PATH. go.mod says why go build alone is not sufficient.
source "$(dirname "${BASH_SOURCE[0]}")/../../../hack/lib.sh"

need_go
cd "$root/test/thirdparty/c2sp-witness"
copy=$(mktemp -d)
trap 'chmod -R u+w "$copy"; rm -rf "$copy"' EXIT
go mod download github.com/transparency-dev/merkle >&2 ||
	fail "could not download the modules of test/thirdparty/c2sp-witness; check the Go module proxy (go env GOPROXY)"
cp -r "$(go list -m -f '{{.Dir}}' github.com/transparency-dev/merkle)" "$copy/merkle"
chmod -R u+w "$copy/merkle"
cat >"$copy/merkle/proof/subtree.go" <<'GO'
package proof

import (
	"errors"

	"github.com/transparency-dev/merkle"
)

func VerifySubtreeConsistency(_ merkle.LogHasher, _, _, _ uint64, _ [][]byte, _, _ []byte) error {
	return errors.New("this build signs no subtrees")
}
GO
cp go.mod "$copy/witness.mod"
cp go.sum "$copy/witness.sum"
go mod edit -replace "github.com/transparency-dev/merkle=$copy/merkle" "$copy/witness.mod"
CGO_ENABLED=0 go build -modfile "$copy/witness.mod" -trimpath -buildvcs=false -o "$1" . >&2 ||
	fail "could not build the witness of test/thirdparty/c2sp-witness"
