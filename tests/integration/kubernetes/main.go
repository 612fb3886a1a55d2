// Validates Kubernetes objects (YAML on stdin) by the code of Kubernetes' own server: strict decoding,
// defaults, and the validation at creation. Prints one line for each problem.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	apps_validation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	autoscaling_validation "k8s.io/kubernetes/pkg/apis/autoscaling/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	batch_validation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	core_validation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networking_validation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policy_validation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/rbac"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	rbac_validation "k8s.io/kubernetes/pkg/apis/rbac/validation"
)

func main() {
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		if len(bytes.TrimSpace(bytes.ReplaceAll(document, []byte("---"), nil))) == 0 {
			continue
		}
		object, kind, err := codecs.UniversalDecoder().Decode(document, nil, nil)
		if err != nil {
			fmt.Printf("%v: %v\n", kind, err)
			continue
		}
		meta := object.(metav1.Object)
		if meta.GetNamespace() == "" && kind.Kind != "Namespace" {
			meta.SetNamespace("data")
		}
		for _, problem := range validate(object) {
			fmt.Printf("%s %s: %v\n", kind.Kind, meta.GetName(), problem)
		}
	}
}

func validate(object runtime.Object) field.ErrorList {
	pods := core_validation.PodValidationOptions{}
	switch it := object.(type) {
	case *core.Service:
		allocate(it)
		return core_validation.ValidateServiceCreate(it)
	case *core.ConfigMap:
		return core_validation.ValidateConfigMap(it)
	case *core.ServiceAccount:
		return core_validation.ValidateServiceAccount(it)
	case *core.Namespace:
		return core_validation.ValidateNamespace(it)
	case *core.Pod:
		return core_validation.ValidatePodCreate(it, pods)
	case *apps.Deployment:
		return apps_validation.ValidateDeployment(it, pods)
	case *apps.StatefulSet:
		return apps_validation.ValidateStatefulSet(it, pods)
	case *batch.Job:
		generateSelector(it)
		return batch_validation.ValidateJob(it, batch_validation.JobValidationOptions{})
	case *networking.NetworkPolicy:
		options := networking_validation.NetworkPolicyValidationOptions{}
		return networking_validation.ValidateNetworkPolicy(it, options)
	case *networking.Ingress:
		return networking_validation.ValidateIngressCreate(it)
	case *policy.PodDisruptionBudget:
		options := policy_validation.PodDisruptionBudgetValidationOptions{}
		return policy_validation.ValidatePodDisruptionBudget(it, options)
	case *rbac.Role:
		return rbac_validation.ValidateRole(it)
	case *rbac.RoleBinding:
		return rbac_validation.ValidateRoleBinding(it)
	case *autoscaling.HorizontalPodAutoscaler:
		options := autoscaling_validation.HorizontalPodAutoscalerSpecValidationOptions{
			MinReplicasLowerBound: 1,
		}
		return autoscaling_validation.ValidateHorizontalPodAutoscaler(it, options)
	}
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("%T is not known here", object))}
}

// Fills in what the server allocates before it validates.
func allocate(service *core.Service) {
	if service.Spec.ClusterIP != "" {
		service.Spec.ClusterIPs = []string{service.Spec.ClusterIP}
	}
	local := service.Spec.ExternalTrafficPolicy == core.ServiceExternalTrafficPolicyLocal
	if local && service.Spec.Type == core.ServiceTypeLoadBalancer {
		service.Spec.HealthCheckNodePort = 30000
	}
}

// Fills in the selector that the server generates before it validates.
func generateSelector(job *batch.Job) {
	manual := true
	job.Spec.ManualSelector = &manual
	job.Spec.Selector = &metav1.LabelSelector{MatchLabels: job.Spec.Template.Labels}
}
