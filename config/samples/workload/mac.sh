#!/bin/sh
# Authenticates a message, or checks what another run has printed for it:
#   mac.sh MESSAGE       mac.sh verify MESSAGE MAC
# All that a Pod needs for it is its projected token and the ConfigMap that the Key
# publishes:
#   TOKEN  file of the token       KEY  directory with url, ca.crt and lineage
set -eu
: "${TOKEN:=/var/run/secrets/keyserver/token}" "${KEY:=/etc/message-key}"
verify=
if [ "${1:-}" = verify ]; then
	verify=,\"mac\":\"${3:?mac.sh verify MESSAGE MAC}\"
	shift
fi
message=${1:-hello}

# ask PATH SESSION: sends what is on stdin and prints the answer. No secret is an
# argument of a program, where others on the machine could see it.
ask() {
	body=$(sed 's/[\\"]/\\&/g')
	curl --silent --show-error --fail-with-body --cacert "$KEY/ca.crt" --config - <<-END
		url = "$(cat "$KEY/url")/api/$1"
		header = "Content-Type: application/json"
		header = "Authorization: Bearer $2"
		data = "$body"
	END
}
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; } # of an answer of one line

login=$(printf '{"method":"kubernetes","token":"%s"}' "$(cat "$TOKEN")" | ask sessions none) || {
	echo "the login was refused; its reason is in the log of the key server: $login" >&2
	exit 1
}
session=$(echo "$login" | field sessionId)
data=$(printf %s "$message" | base64 | tr -d '\n')
printf '{"lineage":"%s","data":"%s"%s}' "$(cat "$KEY/lineage")" "$data" "$verify" | ask "crypto/mac${verify:+/verify}" "$session"
