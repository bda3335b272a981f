//! PURE: `TrackingServer`: an MLflow server with its volume, certificate, credentials, Service and route.
//!
//! | field | child |
//! |---|---|
//! | `volumeSize`, `storageClassName`, `volumeReclaimPolicy` | PersistentVolumeClaim `<name>`, at `/mlflow` |
//! | `cert`, `key` | Secret `<name>`, type `kubernetes.io/tls` |
//! | `aws_access_key`, `aws_secret_key`, `backend_uri` | Secret `<name>-env` |
//! | `size`, `image` and everything about the pod | Deployment `<name>`, Service `<name>` |
//! | `networkPolicy` | NetworkPolicy `<name>` |
//! | `url`, `legacyRootAssets` | the route `<name>` (and `<name>-slash`), by the ingress controller in use |

mod backend;
mod pod;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{EnvVar, PersistentVolumeClaim, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::api::ApiResource;

use self::backend::Backend;
use super::Platform;
use super::site::{self, Site, Wish};
use crate::api::common::{ServerStatus, given};
use crate::api::tracking_server::{TrackingServer, TrackingServerSpec};
use crate::engine::child::{ChildSet, Desired, Live};
use crate::engine::claims::Claim;
use crate::engine::reason::INVALID_SPEC;
use crate::engine::workload::{Blocked, Legacy, Offer, Problem, Ref, Seen, Weight, Workload};
use crate::parts::credentials::{Credentials, Source};

/// Name and number of the port, of container and Service alike.
const PORT: (&str, i32) = ("server", 5000);
/// What MLflow 1.x asks for at the root of the host.
const ROOT_ASSETS: [&str; 2] = ["/static-files", "/ajax-api"];

impl Workload for TrackingServer {
    type Platform = Platform;

    fn owns() -> Vec<ApiResource> {
        site::owns()
    }

    fn refs(&self) -> Vec<Ref> {
        let credentials = self.spec.credentials_secret_ref.as_ref().map(|r| &r.name);
        let backend = self.spec.backend_uri_secret_ref.as_ref().map(|r| &r.name);
        let names = [given(credentials), given(backend)];
        names.into_iter().flatten().map(Into::into).chain([self.name_any()]).map(Ref::to::<Secret>).collect()
    }

    fn offer(&self) -> Offer {
        let (name, namespace) = (self.name_any(), self.namespace().unwrap_or_default());
        let uri = ("MLFLOW_TRACKING_URI".to_owned(), format!("http://{name}.{namespace}.svc:{}", PORT.1));
        let store = given(self.spec.s3_endpoint_url.as_ref());
        let store = store.map(|url| ("MLFLOW_S3_ENDPOINT_URL".to_owned(), url.to_owned()));
        let keys = backend::access_keys(&self.spec).into_iter().map(|(variable, source)| match source {
            Source::Inline(_) => (variable.to_owned(), (environment_secret(&name), variable.to_owned())),
            Source::Reference { secret, key } => (variable.to_owned(), (secret, key)),
        });
        Offer { plain: [uri].into_iter().chain(store).collect(), secret: keys.collect() }
    }

    fn claim(&self, platform: &Platform) -> Option<Claim> {
        let claim = wish(&self.spec).claim(platform)?;
        // With paths at the root of the host nobody else can be there.
        Some(if self.spec.legacy_root_assets == Some(true) { Claim::new(&claim.host, "") } else { claim })
    }

    fn children(&self, seen: &Seen<'_>, platform: &Platform) -> Result<ChildSet<Desired>, Blocked> {
        let server = Server::read(self, seen)?;
        let mut credentials = Credentials::new(environment_secret(&server.site.name));
        let env = server.environment(&mut credentials, platform);

        let set = ChildSet::new().with_each(credentials.secret());
        let set = server.site.add_base(set, &labels(&server.site.name), PORT, platform);
        let set = server.add_deployment(set, env, &credentials, seen)?;
        let root_paths: &[&str] = if self.spec.legacy_root_assets == Some(true) { &ROOT_ASSETS } else { &[] };
        Ok(server.site.add_route(set, PORT, (true, root_paths), seen, platform))
    }

    fn extend_status(&self, seen: &Seen<'_>, live: &ChildSet<Live>, status: &mut ServerStatus) {
        wish(&self.spec).show(self, &labels(&self.name_any()), seen, live, status);
    }

    fn legacy() -> Legacy {
        Legacy { finalizers: &["finalizers.aiscope.io/trackingserver"], managers: &["controller-manager"] }
    }
}

/// The Secret in which inline credentials travel.
fn environment_secret(name: &str) -> String {
    format!("{name}-env")
}

/// The labels that select the pods; immutable, and in use.
fn labels(name: &str) -> BTreeMap<String, String> {
    ["app", "ts_name"].into_iter().map(|label| (label.to_owned(), name.to_owned())).collect()
}

fn wish(spec: &TrackingServerSpec) -> Wish<'_> {
    Wish {
        image: spec.image.as_ref(),
        size: spec.size,
        url: spec.url.as_ref(),
        volume_size: spec.volume_size.as_ref(),
        storage_class_name: spec.storage_class_name.as_ref(),
        volume_reclaim_policy: spec.volume_reclaim_policy,
        cert: spec.cert.as_ref(),
        key: spec.key.as_ref(),
        network_policy: spec.network_policy,
    }
}

/// A spec that has been understood.
struct Server<'a> {
    spec: &'a TrackingServerSpec,
    site: Site<'a>,
    backend: Backend,
}

impl<'a> Server<'a> {
    fn read(owner: &'a TrackingServer, seen: &Seen<'_>) -> Result<Self, Blocked> {
        let spec = &owner.spec;
        let site = wish(spec).read(owner, "MLflow", seen)?;
        for (field, value) in [("workers", spec.workers), ("progressDeadlineSeconds", spec.progress_deadline_seconds)] {
            if value.is_some_and(|value| value < 1) {
                return Err(Blocked::new(INVALID_SPEC, format!("spec.{field} must be 1 or more")));
            }
        }
        Ok(Self { backend: Backend::find(spec, site.volume.mounted, seen), spec, site })
    }

    /// Only one pod may run: it has a volume that one node can mount, or a database that is a file.
    fn is_single(&self) -> bool {
        self.site.volume.mounted || self.backend.is_file()
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
        let waits = !missing.is_empty() && self.site.size > 0;
        set.problems.extend(missing);
        if self.site.size > 1 && self.is_single() {
            set.problems.push(self.one_is_enough());
        }
        let fingerprint = credentials.fingerprint(&self.site.uid, seen);
        let deployment = self.deployment(env, fingerprint)?;
        Ok(if waits {
            set.leaving::<Deployment>(&self.site.name)
        } else {
            set.with(&deployment)
                .needing::<Secret>(credentials.name())
                .needing::<PersistentVolumeClaim>(&self.site.name)
                .needing::<NetworkPolicy>(&self.site.name)
        })
    }

    fn one_is_enough(&self) -> Problem {
        let message = format!(
            "spec.size is {}, but 1 replica runs: a ReadWriteOnce volume or a database file serves only one pod; \
             set spec.size to 1, or use a database server and no volume",
            self.site.size
        );
        Problem { weight: Weight::Degrades, reason: INVALID_SPEC, message }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::summary::{DeploymentFacts, Facts};
    use crate::kinds::{Ingress, golden};
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
        assert_eq!(server(spec).refs(), ["store", "tracker"].map(Ref::to::<Secret>));
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
        let seen = Seen { objects: &[], conflict: None, hosts: None, now: k8s_openapi::jiff::Timestamp::UNIX_EPOCH };
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
