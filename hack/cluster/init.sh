#!/usr/bin/env bash
# The first process of the node. up.sh starts it in new namespaces and cgroups. It creates the mounts and network
# interfaces of a machine and keeps running. When it ends, the node ends.
#
# It cannot write to the machine: the root file system is read-only, and the directories to which programs of the node
# write are private to the node.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The id of this process on the machine, from the machine's own /proc.
read -r pid _ </proc/self/stat
started "$pid" >"$state/init.start"

mount --make-rshared / # so that containers see the mounts of kubelet
mount --bind "$state" "$state"
mount --make-shared "$state"
for writable in /run /var/log; do
	mount -t tmpfs -o mode=755 tmpfs "$writable"
done
mkdir -p /run/netns /run/lock /var/log/pods /var/log/containers
mount --bind "$state/lib" /var/lib
mount --make-shared /var/lib
mount -o remount,bind,ro /

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
while read -r kind directory _; do
	[[ $kind == unified ]] || mkdir -p "/sys/fs/cgroup/$directory"
	case $kind in
	unified)
		umount /sys/fs/cgroup
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		# A cgroup whose children have limits must not contain processes.
		mkdir -p /sys/fs/cgroup/node
		echo 0 >/sys/fs/cgroup/node/cgroup.procs
		echo "+cpu +cpuset +memory +pids +io" >/sys/fs/cgroup/cgroup.subtree_control
		;;
	name=*) mount -t cgroup -o "none,$kind" cgroup "/sys/fs/cgroup/$directory" ;;
	*) mount -t cgroup -o "$kind" cgroup "/sys/fs/cgroup/$directory" ;;
	esac
done <"$state/cgroups"

# kubelet changes settings of the entire kernel. These mounts redirect the changes to ordinary files.
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	[[ -e /proc/sys/$setting ]] || continue
	mkdir -p "$state/sys/${setting%/*}"
	cat "/proc/sys/$setting" >"$state/sys/$setting"
	mount --bind "$state/sys/$setting" "/proc/sys/$setting"
done

hostname "$node_name"
ip link set lo up
if [[ $NODE == first ]]; then # second.sh creates the interface of the second node
	ip link add node0 type veth peer name node1 # both ends stay here, because only an interface with an address is needed
	ip address add "$node_address/24" dev node0
	ip link set node0 up
	ip link set node1 up
	ip route add default dev node0
fi
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0

echo "$pid" >"$state/init.pid"
trap : CHLD
while :; do sleep infinity & wait "$!" || true; done
