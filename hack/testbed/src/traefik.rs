//! The real Traefik, on this machine, before the testbed's pods.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use kube::Api;
use kube::api::{DynamicObject, Patch};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use crate::bring_up::apply;
use crate::command::{command, run};
use crate::error::Error;
use crate::keeper::Ending;
use crate::progress::Step;
use crate::service::{Service, http_status};
use crate::{Testbed, binaries, ports};

/// The release of the CRDs; the program is of the same one.
const TRAEFIK: &str = "v3.7.13";
const TRAEFIK_MODULE: &str = "github.com/traefik/traefik/v3";
const GATEWAY_MODULE: &str = "sigs.k8s.io/gateway-api";
const GATEWAY_API: &str = "v1.5.1";

/// Which routes Traefik serves, and where.
#[derive(Clone, Debug)]
pub struct TraefikOptions {
    /// Traefik's own `IngressRoute` and `Middleware`; its CRDs are installed.
    pub crd: bool,
    /// Ingresses with ingress-nginx's annotations, of class `nginx`, which is made.
    pub nginx: bool,
    /// The Gateway API; its CRDs are installed and the class `traefik` is made. A listener's port must be
    /// [`Traefik::http`]'s or [`Traefik::https`]'s.
    pub gateway: bool,
    /// The port for HTTP; by default a free one.
    pub http: Option<u16>,
    /// The port for HTTPS; by default a free one.
    pub https: Option<u16>,
    /// Further flags.
    pub flags: Vec<String>,
}

impl Default for TraefikOptions {
    fn default() -> Self {
        Self { crd: true, nginx: false, gateway: false, http: None, https: None, flags: Vec::new() }
    }
}

/// A running Traefik; dropping it stops it.
#[derive(Debug)]
pub struct Traefik {
    service: Service,
    http: SocketAddr,
    https: SocketAddr,
    api: SocketAddr,
}

impl Traefik {
    /// Where it takes HTTP (entry point `web`).
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Where it takes HTTPS (entry point `websecure`).
    #[must_use]
    pub fn https(&self) -> SocketAddr {
        self.https
    }

    /// Where it tells what it routes: `/api/rawdata`, `/api/http/routers`.
    #[must_use]
    pub fn api(&self) -> SocketAddr {
        self.api
    }

    /// What it logs.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.service.log
    }
}

/// Fetches Traefik and the CRDs.
pub(crate) async fn prepare() -> Result<(), Error> {
    binaries::traefik().await?;
    binaries::module(TRAEFIK_MODULE, TRAEFIK).await?;
    binaries::module(GATEWAY_MODULE, GATEWAY_API).await.map(drop)
}

impl Testbed {
    /// Starts Traefik on this machine. It reaches pods of a real node; with another node its routes answer 502 or 503.
    ///
    /// # Errors
    /// When it cannot be obtained or does not start.
    pub async fn traefik(&self, options: TraefikOptions) -> Result<Traefik, Error> {
        let program = binaries::traefik().await?;
        if options.crd {
            self.install_traefik_crds().await?;
        }
        if options.gateway {
            self.install_gateway_crds().await?;
        }
        self.classes(&options).await?;
        let [http, https, api] = ports::free(self.plan.slot, 3)[..] else {
            return Err(Error::machine("there are no three free ports on 127.0.0.1", "end some programs"));
        };
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let traefik = Traefik {
            service: Service::new(&self.plan, "traefik")?,
            http: loopback(options.http.unwrap_or(http)),
            https: loopback(options.https.unwrap_or(https)),
            api: loopback(api),
        };
        let mut argv = vec![program.display().to_string()];
        argv.extend(flags(&traefik, &options));
        let kubeconfig = self.kubeconfig().display().to_string();
        traefik.service.start(argv, &[("KUBECONFIG", kubeconfig)], Ending::Terminate)?;
        traefik.service.ready(|| async { http_status(api_address(api), "/ping").await == Some(200) }).await?;
        Ok(traefik)
    }

    /// What routes name to say that they are for this Traefik.
    async fn classes(&self, options: &TraefikOptions) -> Result<(), Error> {
        let nginx = ("networking.k8s.io", "IngressClass", "nginx", "controller", "k8s.io/ingress-nginx");
        let gateway =
            ("gateway.networking.k8s.io", "GatewayClass", "traefik", "controllerName", "traefik.io/gateway-controller");
        let client = self.client("testbed")?;
        for (wanted, (group, kind, name, field, controller)) in [(options.nginx, nginx), (options.gateway, gateway)] {
            if wanted {
                let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
                let class = json!({
                    "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name}, "spec": {field: controller},
                });
                let classes = Api::<DynamicObject>::all_with(client.clone(), &resource);
                classes.patch(name, &apply(), &Patch::Apply(class)).await?;
            }
        }
        Ok(())
    }

    /// Installs Traefik's CRDs and waits until they are served. Doing it again costs little.
    ///
    /// # Errors
    /// When their sources cannot be fetched or the API server refuses them.
    pub async fn install_traefik_crds(&self) -> Result<(), Error> {
        let module = binaries::module(TRAEFIK_MODULE, TRAEFIK).await?;
        self.install(&module.join("integration/fixtures/k8s/01-traefik-crd.yml")).await
    }

    /// Installs the Gateway API's standard CRDs and waits until they are served.
    ///
    /// # Errors
    /// When their sources cannot be fetched or the API server refuses them.
    pub async fn install_gateway_crds(&self) -> Result<(), Error> {
        let module = binaries::module(GATEWAY_MODULE, GATEWAY_API).await?;
        self.install(&module.join("config/crd/standard")).await
    }

    /// Applies the CRDs of a file or directory and waits until they are served.
    ///
    /// # Errors
    /// When the API server refuses them.
    pub async fn install(&self, crds: &Path) -> Result<(), Error> {
        let step = Step::begin(format!("installing {}", crds.file_name().unwrap_or_default().to_string_lossy()));
        let kubectl = || {
            let mut kubectl = command(self.tool("kubectl"));
            kubectl.arg(format!("--kubeconfig={}", self.kubeconfig().display()));
            kubectl
        };
        let file = format!("--filename={}", crds.display());
        let work = async {
            let mut apply = kubectl();
            apply.args(["apply", "--server-side", "--force-conflicts", "--output=name", &file]);
            let applied = run(&mut apply).await?;
            let crds = applied.lines().filter(|name| name.starts_with("customresourcedefinition"));
            let mut wait = kubectl();
            run(wait.args(["wait", "--for=condition=Established", "--timeout=60s"]).args(crds)).await
        };
        step.watch(work).await.map(drop)
    }
}

fn api_address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn flags(traefik: &Traefik, options: &TraefikOptions) -> Vec<String> {
    let mut flags = vec![
        format!("--entrypoints.web.address={}", traefik.http),
        format!("--entrypoints.websecure.address={}", traefik.https),
        format!("--entrypoints.traefik.address={}", traefik.api),
        "--ping=true".to_owned(),
        "--api.insecure=true".to_owned(),
        "--log.level=INFO".to_owned(),
        "--global.checknewversion=false".to_owned(),
        "--global.sendanonymoususage=false".to_owned(),
        // The default gathers changes for two seconds; a test would wait them out every time.
        "--providers.providersthrottleduration=50ms".to_owned(),
    ];
    if options.crd {
        flags.push("--providers.kubernetescrd=true".to_owned());
    }
    if options.nginx {
        flags.extend([
            "--providers.kubernetesingressnginx=true".to_owned(),
            "--providers.kubernetesingressnginx.httpentrypoint=web".to_owned(),
            "--providers.kubernetesingressnginx.httpsentrypoint=websecure".to_owned(),
        ]);
    }
    if options.gateway {
        flags.extend([
            "--providers.kubernetesgateway=true".to_owned(),
            "--providers.kubernetesgateway.statusaddress.ip=127.0.0.1".to_owned(),
        ]);
    }
    flags.extend(options.flags.iter().cloned());
    flags
}
