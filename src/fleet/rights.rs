//! PURE: what the controllers may need to do in a member, from the kinds that they look after.

use kube::api::ApiResource;

/// One verb on one resource, in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// API group; empty for the core.
    pub group: String,
    /// Plural.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: &'static str,
    /// Verb.
    pub verb: &'static str,
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { group, resource, subresource, verb } = self;
        let (dot, slash) = (if group.is_empty() { "" } else { "." }, if subresource.is_empty() { "" } else { "/" });
        write!(f, "{verb} {resource}{dot}{group}{slash}{subresource}")
    }
}

/// Kinds that idle workspaces are asked of.
const ASKED: [&str; 2] = ["jupyternotebooks", "codeservers"];

/// Every right that the controllers of these `resources` with these kinds of `children` need. `install`: CRDs too.
#[must_use]
pub fn needed(resources: &[ApiResource], children: &[ApiResource], install: bool) -> Vec<Right> {
    let mut rights = Vec::new();
    let mut add = |group: &str, resource: &str, subresource: &'static str, verbs: &[&'static str]| {
        rights.extend(verbs.iter().map(|verb| Right {
            group: group.into(),
            resource: resource.into(),
            subresource,
            verb,
        }));
    };
    for ar in resources {
        add(&ar.group, &ar.plural, "", &["list", "watch", "patch", "delete"]);
        add(&ar.group, &ar.plural, "status", &["patch"]);
        // Where blocking owner references are checked, a child names its owner only with this right.
        add(&ar.group, &ar.plural, "finalizers", &["update"]);
    }
    for ar in children {
        add(&ar.group, &ar.plural, "", &["get", "list", "watch", "create", "patch", "delete"]);
    }
    add("", "pods", "", &["list", "watch"]);
    add("", "events", "", &["list", "watch"]);
    add("events.k8s.io", "events", "", &["create", "patch"]);
    // The cluster tells which one it is by its namespace kube-system; each names the hosts it may use.
    add("", "namespaces", "", &["get", "list", "watch"]);
    let crds = "customresourcedefinitions";
    add("apiextensions.k8s.io", crds, "", &["get", "list", "watch"]);
    if install {
        add("apiextensions.k8s.io", crds, "", &["create", "patch"]);
    }
    if resources.iter().any(|ar| ASKED.contains(&ar.plural.as_str())) {
        add("", "services", "proxy", &["get"]);
    }
    rights.sort();
    rights.dedup();
    rights
}

/// Names what is missing, verbs of one resource together.
#[must_use]
pub fn list(missing: &[Right]) -> String {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for right in missing {
        let object = right.to_string();
        let object = object.split_once(' ').map(|(_, object)| object.to_owned()).unwrap_or_default();
        match lines.iter_mut().find(|(known, _)| *known == object) {
            Some((_, verbs)) => verbs.push(right.verb),
            None => lines.push((object, vec![right.verb])),
        }
    }
    lines.iter().map(|(object, verbs)| format!("{} {object}", verbs.join(", "))).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::TrackingServer;
    use crate::engine::workload::Workload;

    #[test]
    fn missing_rights_are_named_by_resource() {
        let resources = [ApiResource::erase::<TrackingServer>(&())];
        let rights = needed(&resources, &TrackingServer::owns(), false);
        let missing: Vec<Right> =
            rights.into_iter().filter(|r| r.resource == "deployments" || r.subresource == "status").collect();
        assert_eq!(
            list(&missing),
            "create, delete, get, list, patch, watch deployments.apps; patch trackingservers.experiment.aiscope/status"
        );
    }

    #[test]
    fn only_an_operator_that_installs_crds_may_write_them_and_only_workspaces_are_asked() {
        let resources = [ApiResource::erase::<TrackingServer>(&())];
        let written = |install| {
            needed(&resources, &[], install).iter().any(|r| r.resource.starts_with("custom") && r.verb == "patch")
        };
        assert!(written(true) && !written(false));
        assert!(!needed(&resources, &[], true).iter().any(|r| r.subresource == "proxy"));
    }
}
