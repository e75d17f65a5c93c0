#!/usr/bin/env bash
#
# Allows every request after 5 seconds. Shows what a slow hook does to its callers, and that callers do not wait
# for each other. AGNHOST_DELAY_SECONDS, AGNHOST_DELAY_TIMEOUT (timeoutSeconds) and AGNHOST_DELAY_FAILURE_POLICY
# change the case. Being a nuisance, it is not among the hooks that the value "true" selects.

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  cat <<YAML
configVersion: v1
kubernetesValidating:
- name: always-allow-delay.agnhost.example.com
  namespace:
    labelSelector:
      matchLabels: {${AGNHOST_SELECTOR_LABEL:-webhook-e2e}: always-allow-delay}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
  failurePolicy: ${AGNHOST_DELAY_FAILURE_POLICY:-Fail}
  timeoutSeconds: ${AGNHOST_DELAY_TIMEOUT:-10}
YAML
}

__main__() {
  sleep "${AGNHOST_DELAY_SECONDS:-5}"
  echo '{"allowed": true, "status": {"message": "this webhook allows all requests"}}' >"$ADMISSION_RESPONSE_PATH"
}

hook::run "$@"
