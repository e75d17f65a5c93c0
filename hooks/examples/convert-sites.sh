#!/usr/bin/env bash
#
# Converts Sites (sites-crd.yaml beside it) from each version to the next and back; the operator finds the way for the others.
# An empty spec is empty in every version. Try it with: kubectl apply -f sites-crd.yaml, then
#   kubectl wait --for=jsonpath='{.spec.conversion.strategy}'=Webhook crd/sites.web.example.com
# because what is created before that is stored without being converted; then create a Site in one version and read it in another.

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  cat <<'YAML'
configVersion: v1
kubernetesCustomResourceConversion:
- name: sites
  crdName: sites.web.example.com
  conversions:
  - {fromVersion: v1alpha1, toVersion: v1beta1}
  - {fromVersion: v1beta1, toVersion: v1}
  - {fromVersion: v1, toVersion: v1beta1}
  - {fromVersion: v1beta1, toVersion: v1alpha1}
YAML
}

__on_conversion::sites::v1alpha1::v1beta1() {
  local wrong
  wrong=$(context::jq -r '
    first(.review.request.objects[].spec.address | values | select(test("^[^:]+:[0-9]+$") | not) | "\"\(.)\"") // empty')
  if [[ -n $wrong ]]; then
    hook::fail_conversion "spec.address must be a host and a port, such as shop.example.com:443, and not $wrong"
  else
    hook::convert '(.spec | values) |= if .address then .address / ":" | {host: .[0], port: .[1]} else . end'
  fi
}

__on_conversion::sites::v1beta1::v1() {
  hook::convert '(.spec | values) |= if .port then {listen: {host, port: (.port | tonumber)}} else . end'
}

__on_conversion::sites::v1::v1beta1() {
  hook::convert '(.spec | values) |= if .listen then .listen | {host, port: (.port | tostring)} else . end'
}

__on_conversion::sites::v1beta1::v1alpha1() {
  hook::convert '(.spec | values) |= if .host then {address: "\(.host):\(.port)"} else . end'
}

hook::run "$@"
