//! PURE: `JupyterNotebook`: JupyterLab with its volume, certificate, token, Service and route.
//!
//! | field | child |
//! |---|---|
//! | `volumeSize`, `storageClassName`, `volumeReclaimPolicy` | PersistentVolumeClaim `<name>`, the home |
//! | `cert`, `key` | Secret `<name>`, type `kubernetes.io/tls` |
//! | | Secret `<name>-token`, made up once |
//! | `size`, `image`, `trackingServerRef` and everything about the pod | Deployment `<name>`, Service `<name>` |
//! | `networkPolicy` | NetworkPolicy `<name>` |
//! | `url` | the route `<name>` (and `<name>-slash`), by the ingress controller in use |

use k8s_openapi::api::core::v1::{EnvVar, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ApiResource;

use super::workspace::{self, Program};
use super::{Platform, site, unused};
use crate::api::common::{ServerStatus, given};
use crate::api::{JupyterNotebook, TrackingServer};
use crate::engine::child::{ChildSet, Desired, Live};
use crate::engine::claims::Claim;
use crate::engine::idle::{Idle, Stop};
use crate::engine::reason::TRACKING_SERVER_MISSING;
use crate::engine::workload::{Blocked, Problem, Ref, Seen, Weight, Workload};
use crate::parts::credentials::referring;
use crate::parts::deployment::variable;
use crate::parts::url::PublicUrl;

const PORT: i32 = 8888;
const HOME: &str = "/home/jovyan";

impl Workload for JupyterNotebook {
    type Platform = Platform;

    fn owns() -> Vec<ApiResource> {
        site::owns()
    }

    fn refers() -> Vec<ApiResource> {
        vec![ApiResource::erase::<Secret>(&()), ApiResource::erase::<TrackingServer>(&())]
    }

    fn refs(&self) -> Vec<Ref> {
        let server = given(self.spec.tracking_server_ref.as_ref()).map(Ref::to::<TrackingServer>);
        [Ref::to::<Secret>(self.name_any())].into_iter().chain(server).collect()
    }

    fn claim(&self, platform: &Platform) -> Option<Claim> {
        workspace::wish(&self.spec.workspace).claim(platform)
    }

    fn children(&self, seen: &Seen<'_>, platform: &Platform) -> Result<ChildSet<Desired>, Blocked> {
        let site = workspace::read(self, &self.spec.workspace, "JupyterLab", seen)?;
        let (env, waits) = self.tracking(seen);
        let program = Program {
            name: "jupyter",
            port: PORT,
            home: HOME,
            variable: "JUPYTER_TOKEN",
            key: "token",
            command: command(&site.url),
            // Sockets of the kernels: not on a volume, which may not hold any.
            env: variable("JUPYTER_RUNTIME_DIR", "/tmp/jupyter").into_iter().chain(env).collect(),
            health: format!("{}/api", site.url.prefix()),
            // It writes its own base path into every link.
            strip: false,
            stop: unused::stop(self),
            waits,
        };
        workspace::children(self, (&self.spec.workspace, &site), program, seen, platform)
    }

    fn extend_status(&self, seen: &Seen<'_>, live: &ChildSet<Live>, status: &mut ServerStatus) {
        workspace::wish(&self.spec.workspace).show(self, &workspace::labels(self), seen, live, status);
        unused::remember(self, status);
    }

    fn idle(&self) -> Option<Idle> {
        let base = PublicUrl::parse(given(self.spec.workspace.url.as_ref())?).ok()?.prefix();
        // Without the argument the question itself would count as use.
        let paths = ["status", "kernels"].map(|what| format!("{base}/api/{what}?no_track_activity=1")).to_vec();
        workspace::idle(self, &self.spec.workspace, paths, Some("token"), unused::of_jupyter)
    }

    fn stopped(&self, stop: Stop, used: Timestamp, status: &mut ServerStatus) {
        unused::enter(stop, used, status);
    }
}

impl JupyterNotebook {
    /// The variables of the tracking server that is referred to; what is wrong when it is not there.
    fn tracking(&self, seen: &Seen<'_>) -> (Vec<EnvVar>, Option<Problem>) {
        let Some(name) = given(self.spec.tracking_server_ref.as_ref()) else { return (Vec::new(), None) };
        let Some(offer) = seen.offer::<TrackingServer>(name) else {
            let message = format!(
                "TrackingServer {name} of spec.trackingServerRef does not exist in this namespace; create it, or remove the \
                 reference: the Deployment waits for it"
            );
            let problem = Problem { weight: Weight::Fails, reason: TRACKING_SERVER_MISSING, message };
            return (Vec::new(), Some(problem));
        };
        let plain = offer.plain.iter().filter_map(|(name, value)| variable(name, value));
        let secret = offer.secret.iter().map(|(name, (secret, key))| referring(name, secret, key));
        (plain.chain(secret).collect(), None)
    }
}

/// All settings that have a default which would do harm.
fn command(url: &PublicUrl) -> Vec<String> {
    let settings = [
        // The loopback address is not reachable from a Service.
        "ip=0.0.0.0".to_owned(),
        format!("port={PORT}"),
        // It would take another port, where nobody looks for it.
        "port_retries=0".to_owned(),
        format!("base_url={}/", url.prefix()),
        format!("root_dir={HOME}"),
        "allow_remote_access=True".to_owned(),
    ];
    let settings = settings.into_iter().map(|setting| format!("--ServerApp.{setting}"));
    ["jupyter", "lab", "--no-browser"].into_iter().map(str::to_owned).chain(settings).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::golden;

    #[test]
    fn every_case_gives_the_children_on_record() {
        golden::check::<JupyterNotebook>("jupyter_notebook");
    }
}
