//! PURE: `TrackingServer`: an MLflow server with its volume, certificate, credentials, Service and route.
//!
//! | field | child |
//! |---|---|
//! | `volumeSize`, `storageClassName`, `volumeReclaimPolicy` | PersistentVolumeClaim `<name>`, at `/mlflow` |
//! | `cert`, `key` | Secret `<name>`, type `kubernetes.io/tls` |
//! | `aws_access_key`, `aws_secret_key`, `backend_uri` | Secret `<name>-env` |
//! | `size`, `image` and everything about the pod | Deployment `<name>`, Service `<name>` |
//! | `url`, `legacyRootAssets` | the route `<name>` (and `<name>-slash`), by the ingress controller in use |

mod backend;
mod pod;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{EnvVar, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::ApiResource;

use self::backend::Backend;
use super::{Ingress, Platform};
use crate::api::common::{ReclaimPolicy, Sensitive, ServerStatus, given};
use crate::api::tracking_server::{TrackingServer, TrackingServerSpec};
use crate::engine::child::{ChildSet, Desired, Live, NO_UID};
use crate::engine::claims::Claim;
use crate::engine::reason::{INVALID_SPEC, ROUTE_CONFLICT};
use crate::engine::summary::Facts;
use crate::engine::workload::{Blocked, Legacy, Problem, Seen, Weight, Workload};
use crate::parts::credentials::Credentials;
use crate::parts::route::{self, Route};
use crate::parts::service;
use crate::parts::tls::Tls;
use crate::parts::url::PublicUrl;
use crate::parts::volume::Volume;

/// Name and number of the port, of container and Service alike.
const PORT: (&str, i32) = ("server", 5000);
/// What MLflow 1.x asks for at the root of the host.
const ROOT_ASSETS: [&str; 2] = ["/static-files", "/ajax-api"];

impl Workload for TrackingServer {
    type Platform = Platform;

    fn owns() -> Vec<ApiResource> {
        let mut kinds = vec![
            ApiResource::erase::<Secret>(&()),
            ApiResource::erase::<PersistentVolumeClaim>(&()),
            ApiResource::erase::<Service>(&()),
            ApiResource::erase::<Deployment>(&()),
        ];
        kinds.extend(route::owns());
        kinds
    }

    fn refs(&self) -> BTreeSet<String> {
        let credentials = self.spec.credentials_secret_ref.as_ref().map(|r| &r.name);
        let backend = self.spec.backend_uri_secret_ref.as_ref().map(|r| &r.name);
        let names = [given(credentials), given(backend)];
        names.into_iter().flatten().map(Into::into).chain([self.name_any()]).collect()
    }

    fn claim(&self, platform: &Platform) -> Option<Claim> {
        let url = PublicUrl::parse(given(self.spec.url.as_ref())?).ok()?;
        match (platform.ingress, self.spec.legacy_root_assets) {
            (Ingress::None, _) => None,
            // It takes paths at the root of the host, so nobody else can be there.
            (_, Some(true)) => Some(Claim::new(&url.host, "")),
            _ => Some(url.claim()),
        }
    }

    fn children(&self, seen: &Seen<'_>, platform: &Platform) -> Result<ChildSet<Desired>, Blocked> {
        let server = Server::read(self, seen)?;
        let certificate = (given(self.spec.cert.as_ref()), Sensitive::given(self.spec.key.as_ref()));
        let tls = Tls::decide(self, &server.name, certificate, &server.url.host, seen);
        let secret = tls.served.clone();
        let mut credentials = Credentials::new(format!("{}-env", server.name));
        let env = server.environment(&mut credentials, platform);

        let set = ChildSet::new().with_each(credentials.secret());
        let set = tls.add_to(&server.name, set);
        let set = server.volume.clone().add_to(set);
        let set = set.with(&service::cluster_ip(&server.name, server.selector(), PORT.0, PORT.1));
        let set = server.add_deployment(set, env, &credentials, seen)?;
        Ok(server.add_route(set, secret.as_deref(), seen, platform))
    }

    fn extend_status(&self, seen: &Seen<'_>, live: &ChildSet<Live>, status: &mut ServerStatus) {
        let name = self.name_any();
        status.url = given(self.spec.url.as_ref()).and_then(|u| PublicUrl::parse(u).ok()).map(|u| u.to_string());
        status.selector = Some(format!("app={name},ts_name={name}"));
        if let Some(Facts::Deployment(facts)) = live.get::<Deployment>(&name).map(|s| &s.facts) {
            status.replicas = Some(facts.replicas);
            status.ready_replicas = Some(facts.ready);
        }
        // Also that of a Secret which somebody else made: the route uses it all the same.
        let tls = live.get::<Secret>(&name).or_else(|| seen.get::<Secret>(&name)).map(|s| &s.facts);
        status.certificate_not_after = match tls {
            Some(Facts::Secret(facts)) => {
                facts.certificate.as_ref().and_then(|c| c.as_ref().ok()).map(|c| Time(c.not_after))
            }
            _ => None,
        };
    }

    fn legacy() -> Legacy {
        Legacy { finalizers: &["finalizers.aiscope.io/trackingserver"], managers: &["controller-manager"] }
    }
}

/// A spec that has been understood.
struct Server<'a> {
    spec: &'a TrackingServerSpec,
    name: String,
    namespace: String,
    uid: String,
    image: &'a str,
    size: i32,
    url: PublicUrl,
    volume: Volume,
    backend: Backend,
}

impl<'a> Server<'a> {
    fn read(owner: &'a TrackingServer, seen: &Seen<'_>) -> Result<Self, Blocked> {
        let (spec, name) = (&owner.spec, owner.name_any());
        let invalid = |message: String| Blocked::new(INVALID_SPEC, message);
        if !is_service_name(&name) {
            return Err(invalid(format!(
                "metadata.name {name:?} cannot be the name of a Service; use at most 63 of a-z, 0-9 and -, starting with a letter"
            )));
        }
        let text = given(spec.url.as_ref()).ok_or_else(|| {
            invalid("spec.url is missing; give the public URL, e.g. https://ml.example.com/team".into())
        })?;
        let url = PublicUrl::parse(text).map_err(|why| invalid(format!("spec.url {why}")))?;
        let image = given(spec.image.as_ref())
            .ok_or_else(|| invalid("spec.image is missing; name a container image with MLflow".into()))?;
        for (field, value, least) in [
            ("size", spec.size, 0),
            ("workers", spec.workers, 1),
            ("progressDeadlineSeconds", spec.progress_deadline_seconds, 1),
        ] {
            if value.is_some_and(|value| value < least) {
                return Err(invalid(format!("spec.{field} must be {least} or more")));
            }
        }
        let wish = (given(spec.volume_size.as_ref()), given(spec.storage_class_name.as_ref()));
        let policy = spec.volume_reclaim_policy.unwrap_or(ReclaimPolicy::Delete);
        let volume = Volume::decide(owner, &name, wish, policy, seen)?;
        Ok(Self {
            backend: Backend::find(spec, volume.mounted, seen),
            namespace: owner.namespace().unwrap_or_default(),
            uid: owner.uid().unwrap_or_else(|| NO_UID.into()),
            size: spec.size.unwrap_or(1),
            spec,
            name,
            image,
            url,
            volume,
        })
    }

    fn selector(&self) -> BTreeMap<String, String> {
        ["app", "ts_name"].into_iter().map(|label| (label.to_owned(), self.name.clone())).collect()
    }

    /// Only one pod may run: it has a volume that one node can mount, or a database that is a file.
    fn is_single(&self) -> bool {
        self.volume.mounted || self.backend.is_file()
    }

    /// Adds the Deployment; while a Secret that it refers to is missing it is left as it is, so that a Secret that is made
    /// anew does not end running pods.
    fn add_deployment(
        &self,
        mut set: ChildSet<Desired>,
        env: Vec<EnvVar>,
        credentials: &Credentials,
        seen: &Seen<'_>,
    ) -> Result<ChildSet<Desired>, Blocked> {
        let missing = credentials.missing(seen);
        let waits = !missing.is_empty() && self.size > 0;
        set.problems.extend(missing);
        if self.size > 1 && self.is_single() {
            set.problems.push(self.one_is_enough());
        }
        let fingerprint = credentials.fingerprint(&self.uid, seen);
        let deployment = self.deployment(env, fingerprint)?;
        Ok(if waits {
            set.leaving::<Deployment>(&self.name)
        } else {
            set.with(&deployment).needing::<Secret>(credentials.name()).needing::<PersistentVolumeClaim>(&self.name)
        })
    }

    fn one_is_enough(&self) -> Problem {
        let message = format!(
            "spec.size is {}, but 1 replica runs: a ReadWriteOnce volume or a database file serves only one pod; \
             set spec.size to 1, or use a database server and no volume",
            self.size
        );
        Problem { weight: Weight::Degrades, reason: INVALID_SPEC, message }
    }

    fn add_route(
        &self,
        set: ChildSet<Desired>,
        tls: Option<&str>,
        seen: &Seen<'_>,
        platform: &Platform,
    ) -> ChildSet<Desired> {
        if let Some(conflict) = seen.conflict {
            let message = format!(
                "{} holds {} or a part of it; change spec.url, or remove the other's",
                conflict.holder, self.url
            );
            return set.problem(Weight::Stalls, ROUTE_CONFLICT, message);
        }
        if platform.ingress == Ingress::Nginx && self.url.is_address() {
            let message = "spec.url must name its host by DNS name: an Ingress cannot name an IP address";
            return set.problem(Weight::Stalls, INVALID_SPEC, message);
        }
        let root_paths: &[&str] = if self.spec.legacy_root_assets == Some(true) { &ROOT_ASSETS } else { &[] };
        platform.ingress.add(&Route { name: &self.name, port: PORT.0, url: &self.url, tls, root_paths }, set)
    }
}

/// RFC 1035, which a Service's name must be; then every other child's name and label is legal too.
fn is_service_name(name: &str) -> bool {
    name.len() <= 63
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::summary::DeploymentFacts;
    use crate::kinds::golden;
    use crate::render;

    #[test]
    fn every_case_gives_the_children_on_record() {
        golden::check::<TrackingServer>("tracking_server");
    }

    fn server(spec: serde_json::Value) -> TrackingServer {
        let mut server = TrackingServer::new("tracker", serde_json::from_value(spec).unwrap());
        server.metadata.uid = Some("6f0a".into());
        server.metadata.namespace = Some("team-a".into());
        server
    }

    fn fingerprint(server: &TrackingServer) -> Option<String> {
        let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
        let set = render::children(server, &[], None, &Platform::default(), now).unwrap();
        let deployment = render::objects(&set).find(|o| o.types.as_ref().is_some_and(|t| t.kind == "Deployment"))?;
        let annotations = &deployment.data["spec"]["template"]["metadata"]["annotations"];
        annotations["aiscope.io/credentials"].as_str().map(Into::into)
    }

    #[test]
    fn a_changed_credential_rolls_the_pods_and_equal_ones_of_two_resources_do_not_show() {
        let with =
            |secret: &str| json!({ "image": "m", "url": "http://h/", "aws_access_key": "a", "aws_secret_key": secret });
        let (first, second) = (server(with("x")), server(with("y")));
        let mut other = first.clone();
        other.metadata.uid = Some("7b1c".into());
        let prints = [&first, &second, &other].map(|s| fingerprint(s).unwrap());
        assert!(prints[0] != prints[1] && prints[0] != prints[2], "{prints:?}");
        assert_eq!(fingerprint(&first).as_ref(), Some(&prints[0]));
        assert_eq!(fingerprint(&server(json!({ "image": "m", "url": "http://h/" }))), None);
    }

    #[test]
    fn the_secrets_it_reads_are_the_certificate_and_those_referred_to() {
        let spec = json!({ "credentialsSecretRef": { "name": "store" }, "backendUriSecretRef": { "name": "" } });
        assert_eq!(server(spec).refs().into_iter().collect::<Vec<_>>(), ["store", "tracker"]);
    }

    #[test]
    fn a_server_with_root_assets_claims_the_whole_host_and_one_without_route_nothing() {
        let spec = json!({ "url": "http://H.example/a/b/", "legacyRootAssets": true });
        let claim = |spec: &serde_json::Value, ingress| {
            server(spec.clone()).claim(&Platform { ingress, ..Platform::default() })
        };
        assert_eq!(claim(&spec, Ingress::Traefik), Some(Claim::new("h.example", "/")));
        assert_eq!(claim(&spec, Ingress::None), None);
        assert_eq!(claim(&json!({ "url": "http://h/a" }), Ingress::Nginx), Some(Claim::new("h", "/a")));
        assert_eq!(claim(&json!({ "url": "nonsense" }), Ingress::Traefik), None);
    }

    #[test]
    fn the_status_shows_what_stands() {
        let facts = DeploymentFacts { replicas: 2, ready: 1, ..DeploymentFacts::default() };
        let mut summary = render::observed::<TrackingServer>(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "tracker" }
        }))
        .unwrap()
        .summary;
        summary.facts = Facts::Deployment(Box::new(facts));
        let ar = ApiResource::erase::<Deployment>(&());
        let item = Live { ar, name: "tracker".into(), summary: Some(summary) };
        let live = ChildSet { items: vec![item], ..ChildSet::default() };
        let mut status = ServerStatus::default();
        let seen = Seen { objects: &[], conflict: None, now: k8s_openapi::jiff::Timestamp::UNIX_EPOCH };
        server(json!({ "url": "HTTPS://H.example/a" })).extend_status(&seen, &live, &mut status);
        assert_eq!(status.url.as_deref(), Some("https://h.example/a/"));
        assert_eq!(status.selector.as_deref(), Some("app=tracker,ts_name=tracker"));
        assert_eq!((status.replicas, status.ready_replicas, status.certificate_not_after), (Some(2), Some(1), None));
    }

    #[test]
    fn nothing_secret_is_shown_by_debug() {
        let spec =
            r#"{"aws_access_key": "AKIA", "aws_secret_key": "hunter2", "key": "hunter2", "backend_uri": "hunter2"}"#;
        let spec: TrackingServerSpec = serde_json::from_str(spec).unwrap();
        let shown = format!("{:?}", TrackingServer::new("a", spec));
        assert!(!shown.contains("hunter2") && !shown.contains("AKIA"), "{shown}");
    }
}
