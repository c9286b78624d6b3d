#!/usr/bin/env bash
# Usage: hack/needs.sh PACKAGE...
#        hack/needs.sh -packages PACKAGE...
#
# Prints what the tests of the packages need of this machine, one word a line:
# cluster, postgres, pooler, directory, syslog, witness, helm, krew, cosign, promtool, prometheus,
# node, browser, curl, shell, hsm, program. With -packages, each package that has tests and what it needs.
#
# Nobody keeps a list of packages. What starts such a program is a package of its
# own, and whoever imports it needs the program.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
cd "$root"
by_package=
if [[ ${1:-} == -packages ]]; then by_package=true; shift; fi

listed=$(go list -test -f '{{if .ForTest}}{{.ForTest}} {{join .Deps " "}}{{end}}' "$@") ||
	fail "could not list the packages: ${*}"
module=$(go list -m)

awk -v module="$module" -v by_package="$by_package" '
	BEGIN {
		means["sigs.k8s.io/controller-runtime/pkg/envtest"] = "cluster"
		means[module "/test/rig/controlplane"] = "cluster"
		means[module "/internal/pgtest"] = "postgres"
		means[module "/internal/pgtest/pgbouncer"] = "pooler"
		means[module "/internal/ldaptest"] = "directory"
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
		order = split("cluster postgres pooler directory syslog witness helm krew cosign promtool prometheus node browser curl shell hsm program", words, " ")
	}
	NF {
		if (!($1 in seen)) { seen[$1] = ""; packages[++count] = $1 }
		for (i = 2; i <= NF; i++) if ($i in means) { needed[means[$i]] = 1; of[$1, means[$i]] = 1 }
	}
	END {
		if (!by_package) {
			for (w = 1; w <= order; w++) if (words[w] in needed) print words[w]
			exit
		}
		for (p = 1; p <= count; p++) {
			line = packages[p]
			for (w = 1; w <= order; w++) if ((packages[p], words[w]) in of) line = line " " words[w]
			print line
		}
	}' <<<"$listed"
