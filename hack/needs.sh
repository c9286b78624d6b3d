#!/bin/sh
# Usage: hack/needs.sh PACKAGE...
#        hack/needs.sh -packages PACKAGE...
#        hack/needs.sh -tier check|test|system PACKAGE...
#
# Prints what the tests of the packages need, one word per line: cluster, postgres, pooler, directory, syslog, witness,
# helm, krew, cosign, promtool, prometheus, node, browser, curl, shell, hsm, program, system. With -packages, prints
# each package that has tests, with its needs. With -tier, prints the packages that a make target runs. "make check"
# runs packages that need only Go. "make test-system" runs packages that start the program or a third-party program, or
# import test/rig/system. "make test" runs all other packages.
#
# There is no list of packages to maintain. A separate package starts each such program. A package that imports it needs
# that program.
. "$(dirname "$0")/lib.sh"

need_go
cd "$root"
by_package= tier=
case ${1:-} in
-packages) by_package=true; shift ;;
-tier)
	tier=${2:-}; shift 2
	case $tier in check | test | system) ;; *) fail "-tier: \"$tier\" is not a tier; use check, test or system" ;; esac
	;;
esac

listed=$(go list -test -f '{{if .ForTest}}{{.ForTest}} {{join .Deps " "}}{{end}}' "$@") ||
	fail "could not list the packages: ${*}"
module=$(go list -m)

printf '%s\n' "$listed" | awk -v module="$module" -v by_package="$by_package" -v tier="$tier" '
	BEGIN {
		means["sigs.k8s.io/controller-runtime/pkg/envtest"] = "cluster"
		means[module "/test/rig/controlplane"] = "cluster"
		means[module "/internal/store/pgtest"] = "postgres"
		means[module "/internal/store/pgtest/pgbouncer"] = "pooler"
		means[module "/internal/auth/ldap/ldaptest"] = "directory"
		means[module "/test/rig/rsyslog"] = "syslog"
		means[module "/test/rig/c2spwitness"] = "witness"
		means[module "/test/rig/helm"] = "helm"
		means[module "/test/rig/krew"] = "krew"
		means[module "/test/rig/cosign"] = "cosign"
		means[module "/test/rig/promtool"] = "promtool"
		means[module "/test/rig/prometheus"] = "prometheus"
		means[module "/test/rig/node"] = "node"
		means[module "/test/rig/browser"] = "browser"
		means[module "/test/rig/curl"] = "curl"
		means[module "/test/rig/shell"] = "shell"
		means[module "/test/rig/hsm"] = "hsm"
		means[module "/test/program"] = "program"
		means[module "/test/rig/system"] = "system"
		order = split("cluster postgres pooler directory syslog witness helm krew cosign promtool prometheus node browser curl shell hsm program system", words, " ")
	}
	NF {
		if (!($1 in seen)) { seen[$1] = ""; packages[++count] = $1 }
		for (i = 2; i <= NF; i++) if ($i in means) { needed[means[$i]] = 1; of[$1, means[$i]] = 1 }
	}
	END {
		if (tier) {
			for (p = 1; p <= count; p++) {
				line = ""
				for (w = 1; w <= order; w++) if ((packages[p], words[w]) in of) line = line " " words[w]
				system_test = line ~ / (witness|helm|krew|cosign|promtool|prometheus|browser|hsm|program|system)/
				if (tier == "system" ? system_test : !system_test && (tier == "test" || line !~ / (cluster|node|shell)/)) print packages[p]
			}
			exit
		}
		if (!by_package) {
			for (w = 1; w <= order; w++) if (words[w] in needed) print words[w]
			exit
		}
		for (p = 1; p <= count; p++) {
			line = packages[p]
			for (w = 1; w <= order; w++) if ((packages[p], words[w]) in of) line = line " " words[w]
			print line
		}
	}'
