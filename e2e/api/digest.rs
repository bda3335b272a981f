//! Rule 1 against the judge: an apply is skipped exactly when the API server would change nothing.
//!
//! One case is left out because it is no change of ours: where our value is not in the server's own spelling (`1024Mi`)
//! and another manager owns the same value in that spelling, an apply would take the field from that manager.

use aiscope_operator::engine::child::{MANAGER, OWNER_LABEL, strip};
use aiscope_operator::engine::digest;
use aiscope_operator::engine::plan::{Settled, is_noop};
use aiscope_operator::engine::summary::summarize;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, ResourceExt};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::kit::{Case, Outcome, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial("an_apply_is_skipped_exactly_when_the_server_would_change_nothing", skipped_exactly_when_noop)]
}

/// Rounds for each kind of child: each is one random edit and one judgement.
const ROUNDS: usize = 60;

/// A kind of child: variants of what is wanted, and what others do to it (merge patches, or applies by force).
struct Sample {
    ar: ApiResource,
    wanted: Vec<Value>,
    edits: Vec<Value>,
}

async fn skipped_exactly_when_noop() -> Outcome {
    let case = Case::new("digest").await?;
    let (mut noops, mut changes) = (0, 0);
    for (index, sample) in samples().into_iter().enumerate() {
        let mut chance = fastrand::Rng::with_seed(index as u64);
        let api = case.dynamic(&sample.ar);
        let mut wanted = desired(&sample, &mut chance)?;
        let mut settled = apply(&api, &sample, &wanted).await?;
        for round in 0..ROUNDS {
            match chance.u8(0..10) {
                0..=3 => edit(&api, &sample, &wanted, &mut chance).await,
                4..=5 => wanted = desired(&sample, &mut chance)?,
                6..=8 => settled = apply(&api, &sample, &wanted).await?,
                _ => {}
            }
            let (live, after) = judge(&api, &wanted).await?;
            let judged = timeless(&live) == timeless(&after);
            let ours = is_noop(&summarize(&sample.ar, &live, &[]), Some(settled), digest::of_desired(&wanted));
            // A value that the server spells otherwise costs one apply, and is remembered then.
            let unsettled = rewritten(&wanted) && settled.desired != digest::of_desired(&wanted);
            if judged != ours && !(judged && unsettled) {
                let context =
                    format!("{} round {round}: the server says no-op is {judged}, we say {ours}", sample.ar.kind);
                let text = |object| serde_json::to_string(object).unwrap_or_default();
                return Err(format!(
                    "{context}\nwanted {}\nlive {}\nafter {}",
                    text(&wanted),
                    text(&live),
                    text(&after)
                )
                .into());
            }
            if judged { noops += 1 } else { changes += 1 }
        }
    }
    assert!(noops > 50 && changes > 50, "one-sided: {noops} no-ops, {changes} changes");
    Ok(())
}

/// The object as it is, and as an apply would leave it. Other controllers write too, so it is asked again when one did.
async fn judge(api: &Api<DynamicObject>, wanted: &DynamicObject) -> kube::Result<(DynamicObject, DynamicObject)> {
    let (name, params) = (wanted.name_any(), PatchParams { dry_run: true, ..PatchParams::apply(MANAGER).force() });
    loop {
        let live = api.get(&name).await?;
        let after = api.patch(&name, &params, &Patch::Apply(wanted)).await?;
        if api.get(&name).await?.resource_version() == live.resource_version() {
            return Ok((live, after));
        }
    }
}

fn desired(sample: &Sample, chance: &mut fastrand::Rng) -> Result<DynamicObject, serde_json::Error> {
    let mut value = sample.wanted[chance.usize(..sample.wanted.len())].clone();
    strip(&mut value);
    value["apiVersion"] = json!(sample.ar.api_version);
    value["kind"] = json!(sample.ar.kind);
    value["metadata"]["name"] = json!("it");
    value["metadata"]["labels"][OWNER_LABEL] = json!("u");
    serde_json::from_value(value)
}

/// It holds a Quantity that is not in the server's own spelling.
fn rewritten(wanted: &DynamicObject) -> bool {
    let text = wanted.data.to_string();
    text.contains("1024Mi") || text.contains("1.5Gi")
}

/// Our apply, and what it left.
async fn apply(
    api: &Api<DynamicObject>,
    sample: &Sample,
    wanted: &DynamicObject,
) -> Result<Settled, crate::kit::Error> {
    let live = api.patch(&wanted.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(wanted)).await?;
    let live = summarize(&sample.ar, &live, &[]).digest.ok_or("no fields are ours after our own apply")?;
    Ok(Settled { desired: digest::of_desired(wanted), live })
}

/// Somebody else's write: a merge patch (`kubectl edit`), or a part of what we want taken over by force. Some are only
/// valid after others; one that is refused changes nothing, which is judged as well.
async fn edit(api: &Api<DynamicObject>, sample: &Sample, wanted: &DynamicObject, chance: &mut fastrand::Rng) {
    let patch = &sample.edits[chance.usize(..sample.edits.len())];
    let (params, patch) = match patch.get("apply") {
        Some(applied) => {
            let mut body = applied.clone();
            body["apiVersion"] = json!(sample.ar.api_version);
            body["kind"] = json!(sample.ar.kind);
            (PatchParams::apply("other").force(), Patch::Apply(body))
        }
        None => (
            PatchParams { field_manager: Some("editor".into()), ..PatchParams::default() },
            Patch::Merge(patch.clone()),
        ),
    };
    let _ = api.patch(&wanted.name_any(), &params, &patch).await;
}

/// The whole object without what every write moves.
fn timeless(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(entries) = value["metadata"]["managedFields"].as_array_mut() {
        for entry in entries.iter_mut() {
            entry["time"] = Value::Null;
        }
        // They are listed by time.
        entries.sort_by_key(|entry| format!("{}{}{}", entry["manager"], entry["operation"], entry["subresource"]));
    }
    value["metadata"]["resourceVersion"] = Value::Null;
    value["metadata"]["generation"] = Value::Null;
    value
}

fn kind(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn samples() -> Vec<Sample> {
    let labels = [
        json!({ "metadata": { "labels": { "added": "by-other" } } }),
        json!({ "metadata": { "labels": { "aiscope.io/owner-uid": "forged" } } }),
        json!({ "metadata": { "annotations": { "note": "x" } } }),
        json!({ "apply": { "metadata": { "labels": { "aiscope.io/owner-uid": "u" } } } }),
        json!({ "apply": { "metadata": { "labels": { "aiscope.io/owner-uid": "taken" } } } }),
    ];
    let mut samples = vec![
        deployment(),
        service(),
        secret(),
        claim(),
        ingress(),
        ingress_route(),
        middleware(),
        http_route(),
        network_policy(),
    ];
    for sample in &mut samples {
        sample.edits.extend(labels.iter().cloned());
    }
    samples
}

fn deployment() -> Sample {
    let pod = |env: Value, memory: &str, extra: Value| {
        let mut container = json!({
            "name": "c", "image": "i", "args": ["a", "b"], "env": env,
            "ports": [{ "name": "server", "containerPort": 5000, "protocol": "TCP" }],
            "resources": { "requests": { "memory": memory, "cpu": "100m" } },
            "volumeMounts": [{ "name": "tmp", "mountPath": "/tmp" }],
            "readinessProbe": { "httpGet": { "path": "/health", "port": "server", "httpHeaders": [{ "name": "Host", "value": "h" }] } },
        });
        container.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap_or_default());
        json!({ "spec": {
            "replicas": 1, "strategy": { "type": "Recreate" }, "selector": { "matchLabels": { "app": "it" } },
            "template": { "metadata": { "labels": { "app": "it" } }, "spec": {
                "enableServiceLinks": false, "volumes": [{ "name": "tmp", "emptyDir": {} }], "containers": [container],
            } },
        } })
    };
    let (a, b) = (json!({ "name": "A", "value": "1" }), json!({ "name": "B", "value": "2" }));
    let from = json!({ "name": "C", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } });
    let container = |body: Value| json!({ "apply": { "spec": { "template": { "spec": { "containers": [body] } } } } });
    Sample {
        ar: kind("apps", "v1", "Deployment"),
        wanted: vec![
            pod(json!([a, b, from]), "1Gi", json!({})),
            pod(json!([b, a]), "1Gi", json!({})),
            pod(json!([a]), "1024Mi", json!({})),
            pod(json!([a, b]), "1.5Gi", json!({ "imagePullPolicy": "IfNotPresent" })),
        ],
        edits: vec![
            json!({ "spec": { "replicas": 3 } }),
            json!({ "spec": { "replicas": 1 } }),
            json!({ "spec": { "minReadySeconds": 5 } }),
            json!({ "spec": { "template": { "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": "now" } } } } }),
            json!({ "spec": { "template": { "spec": { "enableServiceLinks": true } } } }),
            json!({ "apply": { "spec": { "replicas": 1 } } }),
            json!({ "apply": { "spec": { "replicas": 5 } } }),
            container(json!({ "name": "c", "env": [{ "name": "NEW", "value": "1" }] })),
            container(json!({ "name": "c", "env": [{ "name": "A", "value": "changed" }] })),
            container(json!({ "name": "c", "args": ["b", "a"] })),
            container(json!({ "name": "c", "resources": { "requests": { "memory": "2Gi" } } })),
            container(json!({ "name": "side", "image": "other" })),
        ],
    }
}

fn service() -> Sample {
    let ports =
        |ports: Value, type_: &str| json!({ "spec": { "type": type_, "selector": { "app": "it" }, "ports": ports } });
    let server = json!({ "name": "server", "port": 5000, "targetPort": "server", "protocol": "TCP" });
    let extra = json!({ "name": "extra", "port": 6000, "targetPort": 6000, "protocol": "TCP" });
    Sample {
        ar: kind("", "v1", "Service"),
        wanted: vec![
            ports(json!([server]), "ClusterIP"),
            ports(json!([server, extra]), "ClusterIP"),
            ports(json!([extra, server]), "ClusterIP"),
            ports(json!([server]), "NodePort"),
        ],
        edits: vec![
            json!({ "spec": { "selector": { "app": "hijacked" } } }),
            json!({ "spec": { "selector": { "more": "x" } } }),
            json!({ "spec": { "sessionAffinity": "ClientIP" } }),
            json!({ "apply": { "spec": { "ports": [{ "port": 5000, "protocol": "TCP", "targetPort": 1 }] } } }),
            json!({ "apply": { "spec": { "ports": [{ "name": "added", "port": 7000, "protocol": "TCP" }] } } }),
        ],
    }
}

fn secret() -> Sample {
    Sample {
        ar: kind("", "v1", "Secret"),
        wanted: vec![
            json!({ "type": "Opaque", "data": { "a": "MQ==", "b": "Mg==" } }),
            json!({ "type": "Opaque", "data": { "a": "MQ==" } }),
            json!({ "type": "Opaque", "data": { "a": "Mw==" } }),
        ],
        edits: vec![
            json!({ "data": { "a": "eA==" } }),
            json!({ "data": { "c": "eA==" } }),
            json!({ "data": { "a": null } }),
            json!({ "apply": { "data": { "a": "MQ==" } } }),
            json!({ "apply": { "data": { "b": "eQ==" } } }),
        ],
    }
}

fn claim() -> Sample {
    let size = |size: &str| {
        json!({ "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": { "requests": { "storage": size } },
        } })
    };
    Sample {
        ar: kind("", "v1", "PersistentVolumeClaim"),
        wanted: vec![size("1Gi"), size("1024Mi"), size("1Gi")],
        edits: vec![json!({ "metadata": { "annotations": { "a": "b" } } })],
    }
}

fn network_policy() -> Sample {
    let (neighbours, proxy) =
        (json!({ "podSelector": {} }), json!({ "namespaceSelector": { "matchLabels": { "n": "p" } } }));
    let network = json!({ "ipBlock": { "cidr": "192.0.2.0/24" } });
    let rules = |rules: Value| json!({ "spec": { "podSelector": { "matchLabels": { "app": "it" } }, "policyTypes": ["Ingress"], "ingress": rules } });
    let rule = |from: Value| json!([{ "from": from, "ports": [{ "port": "server", "protocol": "TCP" }] }]);
    Sample {
        ar: kind("networking.k8s.io", "v1", "NetworkPolicy"),
        wanted: vec![
            rules(rule(json!([neighbours]))),
            rules(rule(json!([neighbours, proxy, network]))),
            rules(Value::Null),
        ],
        edits: vec![
            json!({ "spec": { "ingress": [{}] } }),
            json!({ "spec": { "ingress": [] } }),
            json!({ "spec": { "podSelector": { "matchLabels": { "app": "other" } } } }),
            json!({ "spec": { "podSelector": { "matchLabels": { "more": "x" } } } }),
            json!({ "spec": { "policyTypes": ["Ingress", "Egress"] } }),
            json!({ "spec": { "egress": [{ "ports": [{ "port": 53, "protocol": "UDP" }] }] } }),
            json!({ "apply": { "spec": { "podSelector": { "matchLabels": { "app": "it" } }, "ingress": [{}] } } }),
        ],
    }
}

fn ingress() -> Sample {
    let path = |path: &str| json!({ "path": path, "pathType": "Prefix", "backend": { "service": { "name": "it", "port": { "name": "server" } } } });
    let rules = |paths: Value, annotations: Value| {
        json!({
            "metadata": { "annotations": annotations },
            "spec": { "rules": [{ "host": "h.example.com", "http": { "paths": paths } }], "tls": [{ "hosts": ["h.example.com"], "secretName": "s" }] },
        })
    };
    Sample {
        ar: kind("networking.k8s.io", "v1", "Ingress"),
        wanted: vec![
            rules(json!([path("/a")]), json!({ "n/rewrite": "/" })),
            rules(json!([path("/a"), path("/b")]), json!({ "n/rewrite": "/" })),
            rules(json!([path("/b"), path("/a")]), json!({ "n/other": "1" })),
        ],
        edits: vec![
            json!({ "spec": { "ingressClassName": "x" } }),
            json!({ "spec": { "tls": [] } }),
            json!({ "metadata": { "annotations": { "n/rewrite": "/changed" } } }),
            json!({ "apply": { "spec": { "rules": [{ "host": "other.example.com" }] } } }),
        ],
    }
}

fn ingress_route() -> Sample {
    let route = |rule: &str, middlewares: Value| json!({ "kind": "Rule", "match": rule, "services": [{ "name": "it", "port": "server" }], "middlewares": middlewares });
    let routes = |routes: Value, tls: Value| json!({ "spec": { "entryPoints": ["websecure", "web"], "routes": routes, "tls": tls } });
    let (a, b) = (route("Host(\"a\")", json!([{ "name": "it" }])), route("Host(\"b\")", json!([])));
    Sample {
        ar: kind("traefik.io", "v1alpha1", "IngressRoute"),
        wanted: vec![
            routes(json!([a]), json!({ "secretName": "s" })),
            routes(json!([a, b]), json!({ "secretName": "s" })),
            routes(json!([b, a]), Value::Null),
        ],
        edits: vec![
            json!({ "spec": { "entryPoints": ["web"] } }),
            json!({ "spec": { "tls": { "secretName": "stolen" } } }),
            json!({ "spec": { "tls": { "passthrough": true } } }),
            json!({ "spec": { "routes": [{ "kind": "Rule", "match": "Host(\"x\")" }] } }),
            json!({ "apply": { "spec": { "routes": [{ "kind": "Rule", "match": "Host(\"y\")" }] } } }),
        ],
    }
}

fn middleware() -> Sample {
    Sample {
        ar: kind("traefik.io", "v1alpha1", "Middleware"),
        wanted: vec![
            json!({ "spec": { "stripPrefix": { "prefixes": ["/a"] } } }),
            json!({ "spec": { "stripPrefix": { "prefixes": ["/a", "/b"] } } }),
            json!({ "spec": { "redirectRegex": { "regex": "^a$", "replacement": "b" } } }),
        ],
        edits: vec![
            json!({ "spec": { "stripPrefix": { "prefixes": ["/x"] } } }),
            json!({ "spec": { "stripPrefix": { "forceSlash": true } } }),
            json!({ "spec": { "compress": {} } }),
            json!({ "apply": { "spec": { "stripPrefix": { "prefixes": ["/a"] } } } }),
        ],
    }
}

fn http_route() -> Sample {
    let rule = |prefix: &str, filters: Value| {
        json!({
            "matches": [{ "path": { "type": "PathPrefix", "value": prefix } }], "filters": filters,
            "backendRefs": [{ "name": "it", "port": 5000 }],
        })
    };
    let rewrite = json!([{ "type": "URLRewrite", "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/" } } }]);
    let route = |rules: Value| json!({ "spec": { "parentRefs": [{ "name": "gate", "namespace": "default" }], "hostnames": ["h.example.com"], "rules": rules } });
    let (a, b) = (rule("/a", rewrite), rule("/b", Value::Null));
    Sample {
        ar: crate::kit::http_route(),
        wanted: vec![route(json!([a])), route(json!([a, b])), route(json!([b, a]))],
        edits: vec![
            json!({ "spec": { "hostnames": ["stolen.example.com"] } }),
            json!({ "spec": { "hostnames": ["h.example.com", "more.example.com"] } }),
            json!({ "spec": { "rules": [b] } }),
            json!({ "apply": { "spec": { "hostnames": ["taken.example.com"] } } }),
            json!({ "apply": { "spec": { "hostnames": ["h.example.com"] } } }),
        ],
    }
}
