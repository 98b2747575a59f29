#!/bin/sh
# One NFS server, and two clients of it that have nothing in common: b has a network of its own, and with it a lease,
# caches and locks of its own, as another node has.
set -eu
install -d /srv/models /srv/peer /nodes/a /nodes/b
echo '/srv/models *(rw,no_root_squash,no_subtree_check)' >/etc/exports
exportfs -r
ip netns add b
ip link add filer type veth peer name eth0 netns b
ip address add 10.1.0.1/24 dev filer
ip link set filer up
ip -n b address add 10.1.0.2/24 dev eth0
ip -n b link set eth0 up
# What a client believes of a folder's names holds for 30 to 60 seconds otherwise, and the machine is slow.
options=vers=4.2,acdirmin=3600,acdirmax=3600
mount -t nfs -o "$options" 10.1.0.1:/srv/models /nodes/a
# Both have the machine's name: without another one the server would take b for an a that was started again.
ip netns exec b sh -c 'echo b >/sys/fs/nfs/net/nfs_client/identifier'
nsenter --net=/run/netns/b mount -t nfs -o "$options" 10.1.0.1:/srv/models /nodes/b
