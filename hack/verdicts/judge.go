package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	argo "github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/argoproj/gitops-engine/pkg/health"
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// What the tools say of one object. Empty: nothing, the tool has no opinion.
type verdict struct {
	// Flux's kstatus: Current, InProgress, Failed, Terminating.
	Kstatus        string `json:"kstatus"`
	KstatusMessage string `json:"kstatusMessage"`
	// Flux's healthCheckExprs of the shipped Kustomization; "error" when an expression cannot be evaluated.
	Flux string `json:"flux"`
	// Argo CD with the shipped argocd-cm: Healthy, Progressing, Degraded.
	Argo        string `json:"argo"`
	ArgoMessage string `json:"argoMessage"`
	// Argo CD without it.
	ArgoBuiltIn string `json:"argoBuiltIn"`
}

type judge struct {
	// By kind, as Argo CD reads them from argocd-cm.
	overrides lua.ResourceHealthOverrides
	exprs     map[schema.GroupVersionKind]*cel.StatusEvaluator
}

func newJudge(dir string) (*judge, error) {
	overrides, err := argoOverrides(filepath.Join(dir, "argocd", "argocd-cm.yaml"))
	if err != nil {
		return nil, err
	}
	exprs, err := fluxExprs(filepath.Join(dir, "flux", "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	return &judge{overrides, exprs}, nil
}

// As Argo CD's SettingsManager.GetResourceOverrides does with this key.
func argoOverrides(file string) (lua.ResourceHealthOverrides, error) {
	var configMap struct {
		Data map[string]string `json:"data"`
	}
	if err := read(file, &configMap); err != nil {
		return nil, err
	}
	overrides := map[string]argo.ResourceOverride{}
	err := yaml.Unmarshal([]byte(configMap.Data["resource.customizations"]), &overrides)
	return overrides, err
}

func fluxExprs(file string) (map[schema.GroupVersionKind]*cel.StatusEvaluator, error) {
	var kustomization struct {
		Spec struct {
			HealthCheckExprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	if err := read(file, &kustomization); err != nil {
		return nil, err
	}
	exprs := map[schema.GroupVersionKind]*cel.StatusEvaluator{}
	for _, check := range kustomization.Spec.HealthCheckExprs {
		evaluator, err := cel.NewStatusEvaluator(&check.HealthCheckExpressions)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, check.Kind, err)
		}
		exprs[schema.FromAPIVersionAndKind(check.APIVersion, check.Kind)] = evaluator
	}
	return exprs, nil
}

func (j *judge) verdict(content map[string]any) (*verdict, error) {
	object, err := parse(content)
	if err != nil {
		return nil, err
	}
	kstatus, err := status.Compute(object)
	if err != nil {
		return nil, err
	}
	evaluator, ok := j.exprs[object.GroupVersionKind()]
	if !ok {
		return nil, fmt.Errorf("no healthCheckExprs for %s", object.GroupVersionKind())
	}
	v := verdict{Kstatus: string(kstatus.Status), KstatusMessage: kstatus.Message, Flux: "error"}
	if result, err := evaluator.Evaluate(context.Background(), object); err == nil {
		v.Flux = string(result.Status)
	}
	if v.Argo, v.ArgoMessage, err = argoHealth(object, j.overrides); err != nil {
		return nil, err
	}
	v.ArgoBuiltIn, _, err = argoHealth(object, lua.ResourceHealthOverrides{})
	return &v, err
}

func argoHealth(object *unstructured.Unstructured, overrides lua.ResourceHealthOverrides) (string, string, error) {
	found, err := health.GetResourceHealth(object, overrides)
	if err != nil || found == nil {
		return "", "", err
	}
	return string(found.Status), found.Message, nil
}

// Numbers become int64, as Kubernetes decodes them.
func parse(content map[string]any) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(text)
}

func read(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
