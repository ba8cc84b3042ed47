#!/bin/sh
# seal.sh KUBESEAL FOLDER: makes a key of the controller, FOLDER/given, and a workload, FOLDER/workload, with what is
# sealed for it: created, changed, deleted and created again.
set -e
mkdir -p "$2/given" "$2/workload"
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=sealed-secret -days 365 -keyout "$2/key" -out "$2/certificate" 2>/dev/null
cat > "$2/given/key.yaml" <<EOF
apiVersion: v1
kind: Secret
metadata: {name: sealed-secrets-key, namespace: kube-system, labels: {sealedsecrets.bitnami.com/sealed-secrets-key: active}}
type: kubernetes.io/tls
data: {tls.crt: $(base64 -w 0 "$2/certificate"), tls.key: $(base64 -w 0 "$2/key")}
EOF
seal() {
  printf 'apiVersion: v1\nkind: Secret\nmetadata: {name: login, namespace: default}\nstringData: {password: %s}\n' "$2" |
    "$1" --cert "$3/certificate" --format yaml
}
seal "$1" first "$2" > "$2/workload/1-create.yaml"
seal "$1" second "$2" > "$2/workload/2-change.yaml"
echo '{apiVersion: bitnami.com/v1alpha1, kind: SealedSecret, metadata: {name: login}}' > "$2/workload/3-gone.delete.yaml"
cp "$2/workload/1-create.yaml" "$2/workload/4-again.yaml"
