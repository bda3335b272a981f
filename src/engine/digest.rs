//! PURE: the digest of what we own in a live object, and of what we want; equal exactly when an apply would change
//! nothing.
//!
//! An apply changes something when a field we want is absent, differs or belongs to others only, or when a field we own
//! is no longer wanted. All four are visible in the live object alone: our entry in `managedFields` names every field
//! we own (FieldsV1: `f:` a field, `k:` a list item by its keys, `v:` an item of a set, `.` the presence of the item
//! itself, no children a leaf), and the object has the values. Fields that the server defaulted or others added are not
//! in our entry and do not count. Order counts in every list, as it does for an apply.
//! Format: <https://pkg.go.dev/k8s.io/apimachinery/pkg/apis/meta/v1#FieldsV1>.

use std::hash::{DefaultHasher, Hash, Hasher};

use kube::api::DynamicObject;
use serde_json::{Map, Value};

/// 64 bits of `SipHash`. A change is missed with probability 2⁻⁶⁴; digests never leave the process.
pub type Digest = u64;

/// The digest of an object that we are about to apply. Name, namespace and type are the object's address, not fields.
#[must_use]
pub fn of_desired(object: &DynamicObject) -> Digest {
    let mut fields: Vec<(&str, Value)> = Vec::new();
    if let Value::Object(data) = &object.data {
        fields.extend(data.iter().map(|(name, value)| (name.as_str(), value.clone())));
    }
    fields.push(("metadata", metadata(object)));
    of_fields(fields)
}

/// The digest of the fields in `fields` (our `FieldsV1`) of a live object.
#[must_use]
pub fn of_live(object: &DynamicObject, fields: &Value) -> Digest {
    let names = fields.as_object().into_iter().flatten();
    of_fields(names.filter_map(|(key, below)| match key.strip_prefix("f:")? {
        "metadata" => Some(("metadata", owned(&metadata(object), below))),
        name => Some((name, object.data.get(name).map_or_else(gone, |value| owned(value, below)))),
    }))
}

fn of_fields<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Digest {
    let mut fields: Vec<_> = fields.into_iter().collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    let mut hasher = DefaultHasher::new();
    for (name, value) in fields {
        name.hash(&mut hasher);
        hash(&value, &mut hasher);
    }
    hasher.finish()
}

/// The digest of named byte strings, in the order given.
pub fn of_bytes<'a>(entries: impl Iterator<Item = (&'a str, &'a [u8])>) -> Digest {
    let mut hasher = DefaultHasher::new();
    for entry in entries {
        entry.hash(&mut hasher);
    }
    hasher.finish()
}

/// The metadata that an apply may own.
fn metadata(object: &DynamicObject) -> Value {
    let meta = &object.metadata;
    let mut out = Map::new();
    if let Some(labels) = meta.labels.as_ref().filter(|m| !m.is_empty()) {
        out.insert("labels".into(), serde_json::to_value(labels).unwrap_or_default());
    }
    if let Some(annotations) = meta.annotations.as_ref().filter(|m| !m.is_empty()) {
        out.insert("annotations".into(), serde_json::to_value(annotations).unwrap_or_default());
    }
    if let Some(owners) = meta.owner_references.as_ref().filter(|v| !v.is_empty()) {
        out.insert("ownerReferences".into(), serde_json::to_value(owners).unwrap_or_default());
    }
    if let Some(finalizers) = meta.finalizers.as_ref().filter(|v| !v.is_empty()) {
        out.insert("finalizers".into(), serde_json::to_value(finalizers).unwrap_or_default());
    }
    Value::Object(out)
}

/// A field that we own by name but that is not in the object: no wanted value equals it.
fn gone() -> Value {
    Value::String("\u{0}gone".into())
}

/// The part of `live` that `fields` names.
fn owned(live: &Value, fields: &Value) -> Value {
    let Some(fields) = fields.as_object() else { return live.clone() };
    let mut children = fields.iter().filter(|(key, _)| key.as_str() != ".").peekable();
    if children.peek().is_none() {
        // `.` alone: the presence of the item is ours, its content is not. No key at all: a leaf, ours as a whole.
        return match live {
            Value::Object(_) if !fields.is_empty() => Value::Object(Map::new()),
            Value::Array(_) if !fields.is_empty() => Value::Array(Vec::new()),
            other => other.clone(),
        };
    }
    match live {
        Value::Object(map) => Value::Object(
            children
                .filter_map(|(key, below)| {
                    let name = key.strip_prefix("f:")?;
                    Some((name.to_owned(), map.get(name).map_or_else(gone, |value| owned(value, below))))
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(owned_items(items, children)),
        _ => gone(),
    }
}

/// Our items of a list, in the list's order; those that are ours by name but not there come last.
fn owned_items<'a>(items: &[Value], fields: impl Iterator<Item = (&'a String, &'a Value)>) -> Vec<Value> {
    let mut found: Vec<(usize, Value)> = fields
        .map(|(key, below)| match position(items, key) {
            Some(at) => (at, owned(&items[at], below)),
            None => (usize::MAX, gone()),
        })
        .collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, value)| value).collect()
}

fn position(items: &[Value], key: &str) -> Option<usize> {
    if let Some(keys) = key.strip_prefix("k:") {
        let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
        items.iter().position(|item| keys.iter().all(|(k, v)| item.get(k) == Some(v)))
    } else if let Some(value) = key.strip_prefix("v:") {
        let value: Value = serde_json::from_str(value).ok()?;
        items.iter().position(|item| *item == value)
    } else {
        key.strip_prefix("i:")?.parse().ok().filter(|at| *at < items.len())
    }
}

/// Hashes a value with its type and extent, keys in order (`serde_json`'s map is sorted).
fn hash(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Null => 0u8.hash(hasher),
        Value::Bool(b) => (1u8, b).hash(hasher),
        Value::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(i), _) => (2u8, i).hash(hasher),
            (None, Some(f)) if f.fract() == 0.0 => (2u8, format!("{f:.0}")).hash(hasher),
            _ => (2u8, n.to_string()).hash(hasher),
        },
        Value::String(s) => (3u8, s).hash(hasher),
        Value::Array(items) => {
            (4u8, items.len()).hash(hasher);
            for item in items {
                hash(item, hasher);
            }
        }
        Value::Object(map) => {
            (5u8, map.len()).hash(hasher);
            for (key, value) in map {
                key.hash(hasher);
                hash(value, hasher);
            }
        }
    }
}
