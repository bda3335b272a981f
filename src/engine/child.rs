//! PURE: sets of children, wanted and live, and the one place where their metadata is stamped.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use super::summary::Summary;
use super::workload::{Problem, Weight, Workload};

/// The field manager of every apply. It is API: a new name would leave the old one's fields behind for ever.
pub const MANAGER: &str = "aiscope-operator";
/// Label on every child: the uid of the resource it belongs to. A uid is always a legal label value, a name is not.
pub const OWNER_LABEL: &str = "aiscope.io/owner-uid";
/// Annotation on a child that outlives its resource: `Kind/name` of the resource that may take it up again.
pub const RETAINED_ANNOTATION: &str = "aiscope.io/retained-for";
/// Stands for the uid of a resource that is not in a cluster (`render` of a plain manifest).
pub const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

/// State of a [`ChildSet`]: computed, not yet acted on.
#[derive(Clone, Debug)]
pub struct Desired {
    /// Kind.
    pub ar: ApiResource,
    /// Name, in the resource's namespace.
    pub name: String,
    /// What is wanted of it.
    pub want: Want,
    /// Kinds and names of earlier children that it makes use of. While one of them is not ours, this child is held back:
    /// a pod must not mount somebody else's volume, nor a route lead to somebody else's Service.
    pub needs: Vec<(String, String)>,
}

/// What is wanted of one child.
#[derive(Clone, Debug)]
pub enum Want {
    /// It stands with exactly these fields, and goes with its resource.
    Stands(Box<DynamicObject>),
    /// It stands with exactly these fields, and outlives its resource.
    Retained(Box<DynamicObject>),
    /// A Secret with a value that is nobody's choice: it stands with this key, whatever is in it. A value that is there is
    /// never changed; the shell makes one up when there is none. It goes with its resource.
    Minted(Box<DynamicObject>, String),
    /// It is left as it is: neither applied nor pruned.
    Stays,
}

/// State of a [`ChildSet`]: what the API server said of the children. Only the cache and the act phase make it, so a
/// status derives from live objects, not from intentions.
#[derive(Clone, Debug)]
pub struct Live {
    /// Kind.
    pub ar: ApiResource,
    /// Name.
    pub name: String,
    /// What the engine keeps of it; `None` when it does not stand.
    pub summary: Option<Summary>,
}

/// The children of one resource in apply order, with what is wrong or awaited.
#[derive(Clone, Debug)]
pub struct ChildSet<S> {
    /// In apply order; pruning follows all applies.
    pub items: Vec<S>,
    /// What is wrong or awaited.
    pub problems: Vec<Problem>,
    /// When the decision can change although nothing else does (a certificate's end).
    pub revisit: Option<Timestamp>,
    /// Reason and message of `Ready` when all is as wanted, if they are not the usual ones.
    pub settled: Option<(&'static str, String)>,
}

impl Desired {
    /// The fields that are wanted; `None` when it is left as it is.
    #[must_use]
    pub fn object(&self) -> Option<&DynamicObject> {
        match &self.want {
            Want::Stands(object) | Want::Retained(object) | Want::Minted(object, _) => Some(object),
            Want::Stays => None,
        }
    }
}

impl<S> Default for ChildSet<S> {
    fn default() -> Self {
        Self { items: Vec::new(), problems: Vec::new(), revisit: None, settled: None }
    }
}

impl ChildSet<Desired> {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a child that goes with its resource.
    #[must_use]
    pub fn with<K: Resource<DynamicType = ()> + Serialize>(self, child: &K) -> Self {
        self.push(ApiResource::erase::<K>(&()), child.name_any(), Want::Stands(Box::new(erase(child))))
    }

    /// Adds children that go with their resource; an `Option` is an iterator too.
    #[must_use]
    pub fn with_each<K: Resource<DynamicType = ()> + Serialize>(self, children: impl IntoIterator<Item = K>) -> Self {
        children.into_iter().fold(self, |set, child| set.with(&child))
    }

    /// Adds a child that outlives its resource: it gets no owner reference, and is taken up again by a resource of the
    /// same kind and name.
    #[must_use]
    pub fn with_retained<K: Resource<DynamicType = ()> + Serialize>(self, child: &K) -> Self {
        self.push(ApiResource::erase::<K>(&()), child.name_any(), Want::Retained(Box::new(erase(child))))
    }

    /// Adds a Secret of this name with a value below `key` that is made up once, and goes with its resource. What needs
    /// it is held back until it stands.
    #[must_use]
    pub fn with_minted(self, name: &str, key: &str) -> Self {
        let ar = ApiResource::erase::<Secret>(&());
        let object = DynamicObject::new(name, &ar).data(json!({ "type": "Opaque" }));
        self.push(ar, name.into(), Want::Minted(Box::new(object), key.into()))
    }

    /// Leaves a child as it is: neither applied nor pruned.
    #[must_use]
    pub fn leaving<K: Resource<DynamicType = ()>>(self, name: impl Into<String>) -> Self {
        self.push(ApiResource::erase::<K>(&()), name.into(), Want::Stays)
    }

    /// Says that the child added last makes use of an earlier one.
    #[must_use]
    pub fn needing<K: Resource<DynamicType = ()>>(mut self, name: impl Into<String>) -> Self {
        if let Some(child) = self.items.last_mut() {
            child.needs.push((K::kind(&()).into_owned(), name.into()));
        }
        self
    }

    /// Adds a problem.
    #[must_use]
    pub fn problem(mut self, weight: Weight, reason: &'static str, message: impl Into<String>) -> Self {
        self.problems.push(Problem { weight, reason, message: message.into() });
        self
    }

    /// Asks for a new decision at `at`, if nothing wakes the resource before.
    #[must_use]
    pub fn revisit(mut self, at: Timestamp) -> Self {
        self.revisit = Some(self.revisit.map_or(at, |other| other.min(at)));
        self
    }

    fn push(mut self, ar: ApiResource, name: String, want: Want) -> Self {
        self.items.push(Desired { ar, name, want, needs: Vec::new() });
        self
    }
}

impl ChildSet<Live> {
    /// A live child by kind and name.
    #[must_use]
    pub fn get<K: Resource<DynamicType = ()>>(&self, name: &str) -> Option<&Summary> {
        self.items
            .iter()
            .find(|c| c.name == name && c.ar.kind == K::kind(&()) && c.ar.group == K::group(&()))?
            .summary
            .as_ref()
    }
}

/// Gives every child its namespace, its owner and the owner label, and drops what means nothing to the API server.
/// The only place where children get metadata; nothing is copied from the resource (GitOps tools would prune the child).
pub fn stamp<W: Workload>(owner: &W, mut set: ChildSet<Desired>) -> ChildSet<Desired> {
    let uid = owner.uid().unwrap_or_else(|| NO_UID.into());
    for child in &mut set.items {
        let (object, retained) = match &mut child.want {
            Want::Stands(object) | Want::Minted(object, _) => (object, false),
            Want::Retained(object) => (object, true),
            Want::Stays => continue,
        };
        let meta = &mut object.metadata;
        meta.namespace = owner.namespace();
        meta.labels.get_or_insert_default().insert(OWNER_LABEL.into(), uid.clone());
        if retained {
            meta.annotations.get_or_insert_default().insert(RETAINED_ANNOTATION.into(), retained_for(owner));
        } else {
            meta.owner_references = Some(vec![owner_reference(owner, uid.clone())]);
        }
        strip(&mut object.data);
    }
    set
}

/// `Kind/name`: who may take up a retained child again.
pub fn retained_for<W: Workload>(owner: &W) -> String {
    format!("{}/{}", W::kind(&()), owner.name_any())
}

fn owner_reference<W: Workload>(owner: &W, uid: String) -> OwnerReference {
    OwnerReference {
        api_version: W::api_version(&()).into_owned(),
        kind: W::kind(&()).into_owned(),
        name: owner.name_any(),
        uid,
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn erase<K: Resource<DynamicType = ()> + Serialize>(child: &K) -> DynamicObject {
    let mut data = serde_json::to_value(child).unwrap_or_default();
    if let Value::Object(map) = &mut data {
        map.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    }
    let ar = ApiResource::erase::<K>(&());
    let mut object = DynamicObject::new(&child.name_any(), &ar).data(data);
    object.metadata = child.meta().clone();
    object
}

/// Fields whose empty object is a choice, not an absence.
const MEANT_EMPTY: [&str; 4] = ["emptyDir", "podSelector", "namespaceSelector", "from"];

/// Removes `null`, `{}` and `[]`, deepest first, except where an empty object is a choice (`emptyDir: {}`).
/// The API server keeps some of them and drops others; an apply that sends them can write for ever
/// (kubernetes#124050, #131175).
pub fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, child| {
                strip(child);
                let empty = match child {
                    Value::Null => true,
                    Value::Object(inner) => inner.is_empty() && !MEANT_EMPTY.contains(&key.as_str()),
                    Value::Array(inner) => inner.is_empty(),
                    _ => false,
                };
                !empty
            });
        }
        // An item of a list is never dropped: its place has a meaning (`ingress: [{}]` allows everything).
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}
