//! PURE: the tests that `manifests/` says what the code says.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::ApiResource;

use crate::api::{CodeServer, EasyService, JupyterNotebook, TrackingServer};
use crate::engine::workload::Workload;

/// `group/resource`, verb.
type Right = (String, String);

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rules of the `ClusterRole` that stands first in a file.
fn rules(file: &str) -> Vec<PolicyRule> {
    let text = read(file);
    let first = text.split("\n---\n").next().unwrap();
    serde_saphyr::from_str::<ClusterRole>(first).unwrap().rules.unwrap()
}

fn rights(rules: &[PolicyRule]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                rights.extend(rule.verbs.iter().map(|verb| (format!("{group}/{resource}"), verb.clone())));
            }
        }
    }
    rights
}

fn all(resource: &str, verbs: &[&str]) -> Vec<Right> {
    verbs.iter().map(|verb| (resource.to_owned(), (*verb).to_owned())).collect()
}

fn of_kind<W: Workload>(rights: &mut BTreeSet<Right>) {
    let name = |ar: &ApiResource| format!("{}/{}", ar.group, ar.plural);
    for child in W::owns() {
        rights.extend(all(&name(&child), &["get", "list", "watch", "create", "patch", "delete"]));
    }
    for other in W::refers() {
        rights.extend(all(&name(&other), &["list", "watch"]));
    }
    let own = format!("{}/{}", W::group(&()), W::plural(&()));
    rights.extend(all(&own, &["list", "watch"]));
    rights.extend(all(&format!("{own}/status"), &["patch"]));
    rights.extend(all(&format!("{own}/finalizers"), &["update"]));
    if !W::legacy().finalizers.is_empty() {
        rights.extend(all(&own, &["patch"]));
    }
}

#[test]
fn the_rights_are_those_of_the_kinds_and_their_children_and_no_others() {
    let mut wanted = BTreeSet::new();
    of_kind::<TrackingServer>(&mut wanted);
    of_kind::<JupyterNotebook>(&mut wanted);
    of_kind::<CodeServer>(&mut wanted);
    of_kind::<EasyService>(&mut wanted);
    // What the engine itself does, for any kind.
    wanted.extend(all("/pods", &["list", "watch"]));
    wanted.extend(all("/events", &["list", "watch"]));
    wanted.extend(all("/services/proxy", &["get"]));
    wanted.extend(all("events.k8s.io/events", &["create", "patch"]));
    let shipped = rights(&rules("base/role/role.yaml"));
    let missing: Vec<_> = wanted.difference(&shipped).collect();
    let unused: Vec<_> = shipped.difference(&wanted).collect();
    assert!(missing.is_empty() && unused.is_empty(), "missing: {missing:?}\nnot needed: {unused:?}");
}

#[test]
fn no_shipped_right_is_a_wildcard() {
    for file in ["base/role/role.yaml", "base/role_cluster.yaml", "base/roles_for_users.yaml"] {
        let text = read(file);
        assert!(!text.lines().filter(|line| !line.trim_start().starts_with('#')).any(|l| l.contains('*')), "{file}");
    }
}

#[test]
fn the_manifests_name_the_version_of_the_code() {
    assert!(read("base/kustomization.yaml").contains(concat!("newTag: ", env!("CARGO_PKG_VERSION"), "\n")));
}
