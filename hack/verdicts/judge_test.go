package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

const gitops = "../../manifests/gitops"

// A status in short: the observed generation of 2 (0: none), and the conditions that are True or False.
func object(kind [2]string, observed int, conditions ...string) map[string]any {
	var list []any
	for _, one := range conditions {
		var name, is string
		fmt.Sscanf(one, "%s %s", &name, &is)
		list = append(list, map[string]any{"type": name, "status": is, "reason": "Why", "message": name})
	}
	status := map[string]any{"conditions": list}
	if observed != 0 {
		status["observedGeneration"] = observed
	}
	return map[string]any{
		"apiVersion": kind[0], "kind": kind[1], "status": status,
		"metadata": map[string]any{"name": "a", "namespace": "team", "generation": 2},
	}
}

func TestEveryRowOfTheContractIsJudgedAsTheTableSays(t *testing.T) {
	judge, err := newJudge(gitops)
	if err != nil {
		t.Fatal(err)
	}
	kinds := [][2]string{
		{"experiment.aiscope/v1alpha2", "TrackingServer"}, {"experiment.aiscope/v1alpha2", "JupyterNotebook"},
		{"experiment.aiscope/v1alpha2", "CodeServer"}, {"app.kubebuilder.io/v1", "EasyService"},
		{"cluster.aiscope/v1alpha1", "Cluster"},
	}
	for _, kind := range kinds {
		none := object(kind, 0)
		delete(none, "status")
		deleting := object(kind, 2, "Ready True")
		deleting["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		// kstatus, healthCheckExprs, Argo CD with the health check, and without.
		rows := []struct {
			what   string
			object map[string]any
			wanted [4]string
		}{
			{"no status at all", none, [4]string{"Current", "error", "Progressing", ""}},
			{"observedGeneration -1", object(kind, -1), [4]string{"InProgress", "InProgress", "Progressing", ""}},
			{"Ready", object(kind, 2, "Ready True"), [4]string{"Current", "Current", "Healthy", ""}},
			{"Ready, old", object(kind, 1, "Ready True"), [4]string{"InProgress", "InProgress", "Progressing", ""}},
			{"Ready, nothing observed", object(kind, 0, "Ready True"), [4]string{"Current", "InProgress", "Progressing", ""}},
			{"not Ready", object(kind, 2, "Ready False"), [4]string{"InProgress", "InProgress", "Progressing", ""}},
			{"Degraded", object(kind, 2, "Ready False", "Degraded True"), [4]string{"InProgress", "InProgress", "Degraded", ""}},
			{"Degraded only", object(kind, 2, "Degraded True"), [4]string{"Current", "InProgress", "Degraded", ""}},
			{"Stalled", object(kind, 2, "Ready False", "Stalled True"), [4]string{"Failed", "Failed", "Degraded", ""}},
			{"Stalled, old", object(kind, 1, "Ready False", "Stalled True"), [4]string{"InProgress", "InProgress", "Progressing", ""}},
			{"Reconciling", object(kind, 2, "Ready True", "Reconciling True"), [4]string{"InProgress", "InProgress", "Progressing", ""}},
			{"deleting", deleting, [4]string{"Terminating", "InProgress", "Progressing", "Progressing"}},
		}
		for _, row := range rows {
			v, err := judge.verdict(row.object)
			if err != nil {
				t.Fatalf("%s, %s: %v", kind[1], row.what, err)
			}
			if got := [4]string{v.Kstatus, v.Flux, v.Argo, v.ArgoBuiltIn}; got != row.wanted {
				t.Errorf("%s, %s: wanted %q, got %q", kind[1], row.what, row.wanted, got)
			}
		}
	}
}

func TestEveryCopyOfTheHealthCheckIsTheSame(t *testing.T) {
	scripts := gitops + "/argocd/resource_customizations/"
	wanted, err := os.ReadFile(scripts + "_.aiscope/_/health.lua")
	if err != nil {
		t.Fatal(err)
	}
	easy, err := os.ReadFile(scripts + "app.kubebuilder.io/EasyService/health.lua")
	if err != nil || !bytes.Equal(easy, wanted) {
		t.Errorf("EasyService's health.lua differs (%v); copy _.aiscope/_/health.lua", err)
	}
	overrides, err := argoOverrides(gitops + "/argocd/argocd-cm.yaml")
	if err != nil || len(overrides) != 2 {
		t.Fatalf("argocd-cm.yaml has %d health checks: %v", len(overrides), err)
	}
	for name, override := range overrides {
		if override.HealthLua != string(wanted) {
			t.Errorf("%s in argocd-cm.yaml differs; copy _.aiscope/_/health.lua", name)
		}
	}
}
