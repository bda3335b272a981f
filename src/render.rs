//! PURE: from manifests to the children that `run` would apply, with no cluster.

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde::Serialize;
use serde_json::Value;

use crate::engine::child::{ChildSet, Desired, stamp};
use crate::engine::claims::Conflict;
use crate::engine::summary::{Facts, summarize};
use crate::engine::workload::{Blocked, Observed, Seen, Workload};
use crate::kinds;

/// The namespace of a manifest that names none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The stamped children of a resource, given the other objects of its namespace.
///
/// # Errors
/// As [`Workload::children`].
pub fn children<W: Workload>(
    owner: &W,
    objects: &[Observed],
    conflict: Option<&Conflict>,
    platform: &W::Platform,
    now: Timestamp,
) -> Result<ChildSet<Desired>, Blocked> {
    let set = owner.children(&Seen { objects, conflict, hosts: None, now }, platform)?;
    Ok(stamp(owner, set))
}

/// Gives a manifest that names no namespace the default one, and a Secret its `stringData` as `data`, as the API server does.
#[must_use]
pub fn admitted(mut manifest: Value) -> Value {
    let namespace = &mut manifest["metadata"]["namespace"];
    if namespace.as_str().unwrap_or_default().is_empty() {
        *namespace = DEFAULT_NAMESPACE.into();
    }
    if let Some(Value::Object(plain)) = manifest.as_object_mut().and_then(|m| m.remove("stringData")) {
        for (key, value) in plain {
            let bytes = ByteString(value.as_str().unwrap_or_default().as_bytes().to_vec());
            manifest["data"][key] = serde_json::to_value(bytes).unwrap_or_default();
        }
    }
    manifest
}

/// An object as the engine would have seen it; `None` when the manifest is no object.
#[must_use]
pub fn observed<W: Workload>(manifest: &Value) -> Option<Observed> {
    let object: DynamicObject = serde_json::from_value(manifest.clone()).ok()?;
    let types = object.types.clone()?;
    let gvk = GroupVersionKind::try_from(&types).ok()?;
    let ar = ApiResource::from_gvk(&gvk);
    let mut summary = summarize(&ar, &object, W::legacy().managers);
    if let Some(offer) = kinds::offer(manifest) {
        summary.facts = Facts::Offer(Box::new(offer));
    }
    Some(Observed { ar, name: object.name_any(), summary })
}

/// The objects of a set, in apply order.
pub fn objects(set: &ChildSet<Desired>) -> impl Iterator<Item = &DynamicObject> {
    set.items.iter().filter_map(Desired::object)
}

/// Several documents in one text, each behind `---`.
///
/// # Errors
/// One of them is not YAML.
pub fn yaml<T: Serialize>(documents: impl IntoIterator<Item = T>) -> Result<String, String> {
    documents.into_iter().try_fold(String::new(), |text, document| {
        let document = serde_saphyr::to_string(&document).map_err(|e| e.to_string())?;
        Ok(format!("{text}---\n{}\n", document.trim_end()))
    })
}
