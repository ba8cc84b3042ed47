#!/bin/sh
# configured.sh CONFIGURATION PORT CERTS COMMAND [ARGUMENT...]: starts an operator whose port of webhooks and folder of
# certificates are in a file of configuration.
set -e
own="$(dirname "$KUBECONFIG")/configuration.yaml"
sed "s|PORT|$2|; s|CERTS|$3|" "$1" > "$own"
shift 3
exec "$@" "--config=$own"
