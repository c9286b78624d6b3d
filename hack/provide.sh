#!/usr/bin/env bash
# Usage: environment=$(hack/provide.sh PACKAGE...) && eval "$environment"
#
# Provides only the programs that the tests of the packages need (hack/needs.sh). Prints shell commands that export
# their locations. A server that it starts ends when the shell that runs the line above ends.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# With this variable, a missing program makes a test fail (test/rig/need).
printf 'export RIG_PROVIDED=1\n'

tell() { printf 'export %s=%q\n' "$1" "$2"; } # NAME VALUE

needs=$("$root/hack/needs.sh" "$@")
for need in $needs; do
	case $need in
	cluster)
		path=$("$root/hack/controlplane.sh")
		tell KUBEBUILDER_ASSETS "$path"
		;;
	postgres)
		path=$("$root/hack/postgres.sh")
		tell RIG_PG_BIN "$path"
		# All packages use one server. It ends when the shell that called this script ends.
		program=$root/bin/test/provide-postgres
		(cd "$root" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$program" ./internal/store/pgtest/provide) >&2 ||
			fail "could not build internal/store/pgtest/provide"
		path=$(RIG_PG_BIN=$path "$program" "$PPID") || fail "could not start PostgreSQL for the tests"
		tell RIG_PG_HOST "$path"
		;;
	pooler)
		path=$("$root/hack/pgbouncer.sh")
		tell RIG_PGBOUNCER "$path"
		;;
	directory)
		path=$("$root/hack/slapd.sh")
		tell RIG_SLAPD "$path"
		;;
	syslog)
		path=$("$root/hack/rsyslog.sh")
		tell RIG_RSYSLOGD "$path"
		;;
	witness)
		path=$root/bin/test/c2sp-witness
		"$root/test/thirdparty/c2sp-witness/build.sh" "$path"
		tell RIG_C2SP_WITNESS "$path"
		;;
	helm)
		path=$root/bin/test/helm
		CGO_ENABLED=0 go build -C "$root/test/thirdparty/helm" -trimpath -buildvcs=false -ldflags "-s -w" -o "$path" helm.sh/helm/v4/cmd/helm >&2 ||
			fail "could not build the Helm of test/thirdparty/helm"
		tell RIG_HELM "$path"
		;;
	krew)
		path=$root/bin/test/krew
		for program in kubectl-krew:krew validate-krew-manifest:validate-krew-manifest; do
			CGO_ENABLED=0 go build -C "$root/test/thirdparty/krew" -trimpath -buildvcs=false -ldflags "-s -w" -o "$path/${program%:*}" "sigs.k8s.io/krew/cmd/${program#*:}" >&2 ||
				fail "could not build the krew of test/thirdparty/krew"
		done
		tell RIG_KREW "$path"
		;;
	cosign)
		path=$root/bin/test/cosign
		CGO_ENABLED=0 go build -C "$root/test/thirdparty/cosign" -trimpath -buildvcs=false -ldflags "-s -w" -o "$path" github.com/sigstore/cosign/v3/cmd/cosign >&2 ||
			fail "could not build the cosign of test/thirdparty/cosign"
		tell RIG_COSIGN "$path"
		;;
	promtool) # without target discovery, because tests of rules do not need it
		path=$root/bin/test/promtool
		CGO_ENABLED=0 go build -C "$root/test/thirdparty/promtool" -tags remove_all_sd -trimpath -buildvcs=false -ldflags "-s -w" -o "$path" github.com/prometheus/prometheus/cmd/promtool >&2 ||
			fail "could not build the promtool of test/thirdparty/promtool"
		tell RIG_PROMTOOL "$path"
		;;
	prometheus)
		path=$("$root/hack/prometheus.sh")
		tell RIG_PROMETHEUS "$path"
		;;
	node) "$root/hack/node.sh" >&2 ;;
	browser) # the program embeds the console, so it is built last
		"$root/hack/console.sh" >&2
		path=$("$root/hack/chromium.sh")
		tell RIG_CHROMIUM "$path"
		;;
	curl)
		command -v curl >/dev/null ||
			need_debian_packages "curl is not installed, and a test of docs/api.md needs it" curl
		;;
	shell)
		missing=()
		for program in curl:curl jq:jq age-keygen:age; do
			command -v "${program%:*}" >/dev/null || missing+=("${program#*:}")
		done
		((${#missing[@]} == 0)) ||
			need_debian_packages "programs that a test of docs/guides needs are not installed" "${missing[@]}"
		;;
	hsm)
		"$root/hack/compiler.sh"
		path=$("$root/hack/softhsm.sh")
		tell RIG_SOFTHSM "$path"
		path=$root/bin/test/kms-pkcs11
		CGO_ENABLED=1 go build -C "$root/hack/kms-pkcs11" -trimpath -buildvcs=false -o "$path" . >&2 ||
			fail "could not build the plugin of hack/kms-pkcs11"
		tell RIG_KMS_PKCS11 "$path"
		;;
	program) # linked once for all test suites that start it
		path=$root/bin/test/keyserver-operator
		(cd "$root" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/test/ . ./cmd/...) >&2 ||
			fail "could not build the programs"
		tell RIG_PROGRAM "$path"
		;;
	esac
done
