//! PURE: `CodeServer`: VS Code in a browser with its volume, certificate, password, Service and route.
//!
//! | field | child |
//! |---|---|
//! | `volumeSize`, `storageClassName`, `volumeReclaimPolicy` | PersistentVolumeClaim `<name>`, the home |
//! | `cert`, `key` | Secret `<name>`, type `kubernetes.io/tls` |
//! | | Secret `<name>-password`, made up once |
//! | `size`, `image`, `allowProxy` and everything about the pod | Deployment `<name>`, Service `<name>` |
//! | `networkPolicy` | NetworkPolicy `<name>` |
//! | `url` | the route `<name>` (and `<name>-slash`), by the ingress controller in use |

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ApiResource;

use super::workspace::{self, Program};
use super::{Platform, site, unused};
use crate::api::CodeServer;
use crate::api::common::ServerStatus;
use crate::engine::child::{ChildSet, Desired, Live};
use crate::engine::claims::Claim;
use crate::engine::idle::{Idle, Stop};
use crate::engine::reason::INVALID_SPEC;
use crate::engine::workload::{Blocked, Ref, Seen, Workload};

const PORT: i32 = 8080;
const HOME: &str = "/home/coder";

impl Workload for CodeServer {
    type Platform = Platform;

    fn owns() -> Vec<ApiResource> {
        site::owns()
    }

    fn refs(&self) -> Vec<Ref> {
        vec![Ref::to::<Secret>(self.name_any())]
    }

    fn claim(&self, platform: &Platform) -> Option<Claim> {
        workspace::wish(&self.spec.workspace).claim(platform)
    }

    fn children(&self, seen: &Seen<'_>, platform: &Platform) -> Result<ChildSet<Desired>, Blocked> {
        let site = workspace::read(self, &self.spec.workspace, "code-server", seen)?;
        if self.spec.workspace.env.iter().flatten().any(|variable| variable.name == "PORT") {
            let message =
                "spec.env has PORT, by which code-server listens elsewhere than its Service expects; remove it";
            return Err(Blocked::new(INVALID_SPEC, message));
        }
        let program = Program {
            name: "code-server",
            port: PORT,
            home: HOME,
            variable: "PASSWORD",
            key: "password",
            command: self.command(&site.uid),
            env: Vec::new(),
            health: "/healthz".into(),
            // It knows no base path; all its links are relative.
            strip: true,
            stop: unused::stop(self),
            waits: None,
        };
        workspace::children(self, (&self.spec.workspace, &site), program, seen, platform)
    }

    fn extend_status(&self, seen: &Seen<'_>, live: &ChildSet<Live>, status: &mut ServerStatus) {
        workspace::wish(&self.spec.workspace).show(self, &workspace::labels(self), seen, live, status);
        unused::remember(self, status);
    }

    fn idle(&self) -> Option<Idle> {
        workspace::idle(self, &self.spec.workspace, vec!["/healthz".into()], None, unused::of_code_server)
    }

    fn stopped(&self, stop: Stop, used: Timestamp, status: &mut ServerStatus) {
        unused::enter(stop, used, status);
    }
}

impl CodeServer {
    fn command(&self, uid: &str) -> Vec<String> {
        let mut command = vec![
            "code-server".to_owned(),
            format!("--bind-addr=0.0.0.0:{PORT}"),
            "--auth=password".to_owned(),
            "--disable-telemetry".to_owned(),
            "--disable-update-check".to_owned(),
            // Several on one host would take each other's session for their own.
            format!("--cookie-suffix={uid}"),
        ];
        // It would open every port of the pod to whoever is logged in.
        command.extend((self.spec.allow_proxy != Some(true)).then(|| "--disable-proxy".to_owned()));
        command.push(HOME.into());
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::golden;

    #[test]
    fn every_case_gives_the_children_on_record() {
        golden::check::<CodeServer>("code_server");
    }
}
