#!/usr/bin/env bash
#
# Refuses CustomResourceDefinitions labelled webhook-e2e-test=webhook-disallow. Shows a rule for a resource that is
# in no namespace: what opts in is a label of the object itself.

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  cat <<YAML
configVersion: v1
kubernetesValidating:
- name: crd.agnhost.example.com
  labelSelector:
    matchExpressions:
    - {key: ${AGNHOST_SELECTOR_LABEL:-webhook-e2e}, operator: In, values: ["true", crd]}
  rules:
  - apiGroups: [apiextensions.k8s.io]
    apiVersions: [v1, v1beta1]
    resources: [customresourcedefinitions]
    operations: [CREATE]
    scope: Cluster
YAML
}

__main__() {
  if [[ $(context::get review.request.object.metadata.labels.webhook-e2e-test) == webhook-disallow ]]; then
    hook::deny "the crd contains unwanted label"
  else
    hook::allow
  fi
}

hook::run "$@"
