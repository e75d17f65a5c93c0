//! The kinds of Kubernetes v1.36 as its discovery names them. A table and nothing else; `kinds.rs` reads it once, on the main thread.
//!
//! One line for each: group (`-` for the core), version, plural, Kind, short names, scope (`n`amespaced or `c`luster), subresources.
//! The order is that of discovery, in which the version that the server prefers comes first. `tests/cluster/offline` asks a real
//! API server for its discovery and compares.

pub(super) const BUILT_IN: &str = "\
- v1 bindings Binding - n -
- v1 componentstatuses ComponentStatus cs c -
- v1 configmaps ConfigMap cm n -
- v1 endpoints Endpoints ep n -
- v1 events Event ev n -
- v1 limitranges LimitRange limits n -
- v1 namespaces Namespace ns c finalize,status
- v1 nodes Node no c proxy,status
- v1 persistentvolumeclaims PersistentVolumeClaim pvc n status
- v1 persistentvolumes PersistentVolume pv c status
- v1 pods Pod po n attach,binding,ephemeralcontainers,eviction,exec,log,portforward,proxy,resize,status
- v1 podtemplates PodTemplate - n -
- v1 replicationcontrollers ReplicationController rc n scale,status
- v1 resourcequotas ResourceQuota quota n status
- v1 secrets Secret - n -
- v1 serviceaccounts ServiceAccount sa n token
- v1 services Service svc n proxy,status
apiregistration.k8s.io v1 apiservices APIService - c status
apps v1 controllerrevisions ControllerRevision - n -
apps v1 daemonsets DaemonSet ds n status
apps v1 deployments Deployment deploy n scale,status
apps v1 replicasets ReplicaSet rs n scale,status
apps v1 statefulsets StatefulSet sts n scale,status
events.k8s.io v1 events Event ev n -
authentication.k8s.io v1 selfsubjectreviews SelfSubjectReview - c -
authentication.k8s.io v1 tokenreviews TokenReview - c -
authorization.k8s.io v1 localsubjectaccessreviews LocalSubjectAccessReview - n -
authorization.k8s.io v1 selfsubjectaccessreviews SelfSubjectAccessReview - c -
authorization.k8s.io v1 selfsubjectrulesreviews SelfSubjectRulesReview - c -
authorization.k8s.io v1 subjectaccessreviews SubjectAccessReview - c -
autoscaling v2 horizontalpodautoscalers HorizontalPodAutoscaler hpa n status
autoscaling v1 horizontalpodautoscalers HorizontalPodAutoscaler hpa n status
batch v1 cronjobs CronJob cj n status
batch v1 jobs Job - n status
certificates.k8s.io v1 certificatesigningrequests CertificateSigningRequest csr c approval,status
networking.k8s.io v1 ingressclasses IngressClass - c -
networking.k8s.io v1 ingresses Ingress ing n status
networking.k8s.io v1 ipaddresses IPAddress ip c -
networking.k8s.io v1 networkpolicies NetworkPolicy netpol n -
networking.k8s.io v1 servicecidrs ServiceCIDR - c status
policy v1 poddisruptionbudgets PodDisruptionBudget pdb n status
rbac.authorization.k8s.io v1 clusterrolebindings ClusterRoleBinding - c -
rbac.authorization.k8s.io v1 clusterroles ClusterRole - c -
rbac.authorization.k8s.io v1 rolebindings RoleBinding - n -
rbac.authorization.k8s.io v1 roles Role - n -
storage.k8s.io v1 csidrivers CSIDriver - c -
storage.k8s.io v1 csinodes CSINode - c -
storage.k8s.io v1 csistoragecapacities CSIStorageCapacity - n -
storage.k8s.io v1 storageclasses StorageClass sc c -
storage.k8s.io v1 volumeattachments VolumeAttachment - c status
storage.k8s.io v1 volumeattributesclasses VolumeAttributesClass vac c -
admissionregistration.k8s.io v1 mutatingadmissionpolicies MutatingAdmissionPolicy - c -
admissionregistration.k8s.io v1 mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding - c -
admissionregistration.k8s.io v1 mutatingwebhookconfigurations MutatingWebhookConfiguration - c -
admissionregistration.k8s.io v1 validatingadmissionpolicies ValidatingAdmissionPolicy - c status
admissionregistration.k8s.io v1 validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding - c -
admissionregistration.k8s.io v1 validatingwebhookconfigurations ValidatingWebhookConfiguration - c -
apiextensions.k8s.io v1 customresourcedefinitions CustomResourceDefinition crd,crds c status
scheduling.k8s.io v1 priorityclasses PriorityClass pc c -
coordination.k8s.io v1 leases Lease - n -
node.k8s.io v1 runtimeclasses RuntimeClass - c -
discovery.k8s.io v1 endpointslices EndpointSlice - n -
resource.k8s.io v1 deviceclasses DeviceClass - c -
resource.k8s.io v1 resourceclaims ResourceClaim - n status
resource.k8s.io v1 resourceclaimtemplates ResourceClaimTemplate - n -
resource.k8s.io v1 resourceslices ResourceSlice - c -
flowcontrol.apiserver.k8s.io v1 flowschemas FlowSchema - c status
flowcontrol.apiserver.k8s.io v1 prioritylevelconfigurations PriorityLevelConfiguration - c status
";
