# shellcheck shell=bash
# Shared by the scripts of the node. All files of the node are in $state. Its processes, mounts and interfaces are in
# namespaces and cgroups that end with the node.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

here=$root/hack/cluster
cluster=$root/bin/cluster # directory of the first node and of the entire cluster
pods=10.244.0.0/16
case ${NODE:=first} in # the node that the script uses
first) state=$cluster node_name=node node_address=10.99.0.2 node_pods=10.244.0.0/24 ;;
second) state=$cluster/second node_name=second node_address=10.99.0.3 node_pods=10.244.1.0/24 ;;
*) fail "NODE: \"$NODE\" is not valid; it must be first or second" ;;
esac
export NODE
services=10.96.0.0/16
apiserver_address=10.99.0.2
dns_address=10.96.0.10

# running: succeeds if this node of this checkout is running.
running() {
	[[ -s $state/init.pid && $(started "$(<"$state/init.pid")") == "$(<"$state/init.start")" ]]
}

# started PID: prints the start time of a process in kernel ticks. The kernel reuses process ids, but the id and the
# start time together identify a process.
started() {
	local line
	line=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
	line=${line##*) }
	cut -d' ' -f20 <<<"$line"
}

need_running() { running || fail "the $NODE node is not running; start the first one with make cluster, and the second one with hack/cluster/second.sh"; }

# inside COMMAND...: runs a command on the node, in all of its namespaces. It does not join the cgroups; see start.sh.
inside() {
	nsenter --target "$(<"$state/init.pid")" --mount --net --pid --ipc --uts --cgroup --wd=/ -- "$@"
}

kubectl() { "$cluster/kubectl" --request-timeout=5s "$@"; }

# certificate NAME SUBJECT AUTHORITY [NAMES]: creates NAME.key and NAME.crt.
certificate() {
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$1.key" -out "$1.csr"
	openssl x509 -req -in "$1.csr" -CA "$3.crt" -CAkey "$3.key" -CAcreateserial -days 30 -out "$1.crt" \
		-extfile <(printf 'extendedKeyUsage=serverAuth,clientAuth\n%s\n' "${4:+subjectAltName=$4}")
}

# kubeconfig WHO FILE: writes a kubeconfig with the certificate of that name.
kubeconfig() {
	cat >"$2" <<-YAML
		apiVersion: v1
		kind: Config
		current-context: node
		contexts: [{name: node, context: {cluster: node, user: $1}}]
		clusters: [{name: node, cluster: {server: "https://$apiserver_address:6443", certificate-authority: $cluster/certificates/ca.crt}}]
		users: [{name: $1, user: {client-certificate: $cluster/certificates/$1.crt, client-key: $cluster/certificates/$1.key}}]
	YAML
	chmod 600 "$2"
}

# await SECONDS WHAT COMMAND...: repeats the command until it succeeds.
await() {
	local end=$((SECONDS + $1)) what=$2; shift 2
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || fail "timeout while $what; the logs of the node are in $state/log"
		running || fail "the node ended while $what; its logs are in $state/log"
		sleep 0.1
	done
}

# need_node_rights fails with the reason in one sentence if a node cannot be created.
need_node_rights() {
	[[ $(uname -s) == Linux ]] || fail "a node requires Linux, but this is $(uname -s)"
	[[ $(id -u) == 0 ]] || fail "a node requires root, to create namespaces, cgroups, mounts and network interfaces"
	unshare --mount --net --pid --uts --ipc --cgroup --fork true 2>/dev/null ||
		fail "this machine does not allow new namespaces, which a node requires; in a container, use privileged mode"
	if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
		echo "+cpu +cpuset +memory +pids +io" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null ||
			fail "/sys/fs/cgroup has processes, so the node cannot get cgroup controllers; move these processes into a child cgroup first"
	else
		[[ -w /sys/fs/cgroup/memory && -w /sys/fs/cgroup/pids ]] ||
			fail "the cgroups of this machine are not writable, which a node requires; in a container, use privileged mode"
	fi
}

# libraries_into DIRECTORY FILE...: copies the libraries of the files to the paths from which they are loaded.
libraries_into() {
	local directory=$1 library; shift
	ldd "$@" | grep -o '/[^ )]*[^ ):]' | sort -u | while read -r library; do
		[[ $library == *.so* ]] || continue # ldd also prints the names of the files
		mkdir -p "$directory${library%/*}"
		cp -L "$library" "$directory$library"
	done
}

# program_into DIRECTORY PROGRAM...: copies programs of this machine and their libraries into the root directory of an
# image.
program_into() {
	local directory=$1 program path; shift
	for program in "$@"; do
		path=$(command -v "$program")
		cp -L "$path" "$directory/usr/bin/$program"
		libraries_into "$directory" "$path"
	done
}
