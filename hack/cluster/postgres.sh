#!/usr/bin/env bash
# Imports an image with the PostgreSQL of this machine into the node: its programs, their libraries and a shell. The
# paths are the same as on the machine, because the programs look for each other there.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_running
bin=$("$root/hack/postgres.sh")
share=$("$bin/pg_config" --sharedir)
work=$(mktemp -d -p "$state/tmp")
trap 'rm -rf "$work"' EXIT

mkdir -p "$work"/image/{etc,tmp,usr/bin} "$work/image${bin%/*}" "$work/image$share"
ln -s usr/bin "$work/image/bin"
cp -rL "${bin%/*}/." "$work/image${bin%/*}"
rm -rf "$work/image${bin%/*}/lib/bitcode" # only PostgreSQL's query compiler uses it, and the image does not contain that
cp -rL "$share/." "$work/image$share"
program_into "$work/image" bash cat chmod cp
libraries_into "$work/image" "$bin"/{initdb,pg_isready,postgres} "${bin%/*}"/lib/{dict_snowball,libpqwalreceiver,plpgsql}.so
ln -s bash "$work/image/usr/bin/sh"
echo "postgres:x:65532:65532::/tmp:/bin/sh" >"$work/image/etc/passwd" # initdb looks up the name of its user
"$here/image.sh" registry.example/postgres:1 "$work/image" \
	'{"Cmd":["postgres"],"Env":["PATH='"$bin"':/usr/bin","LC_ALL=C"],"User":"65532:65532"}'
