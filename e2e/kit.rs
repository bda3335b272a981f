//! What the tests share: one control plane for a run, a namespace and an operator for each test.

use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aiscope_operator::api::tracking_server::TrackingServer;
use aiscope_operator::engine::operator::Operator;
use aiscope_operator::engine::workload::{Conditioned, Workload};
use aiscope_operator::kinds::{self, Platform};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, ValidationDirective};
use kube::core::{NamespaceResourceScope, ObjectMeta};
use kube::runtime::{conditions, wait};
use kube::{Api, Client, Resource, ResourceExt};
use libtest_mimic::{Failed, Trial};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use testbed::{Node, Options, Request, Testbed};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Whatever went wrong.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What a test returns: any error fails it.
pub type Outcome = Result<(), Error>;

/// How long anything may take that is waited for.
pub const DEADLINE: Duration = Duration::from_mins(1);

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime")
});

/// Makes a test. Its name is a sentence.
pub fn trial<F>(name: &'static str, test: fn() -> F) -> Trial
where
    F: Future<Output = Outcome> + Send + 'static,
{
    Trial::test(name, move || {
        let ended = RUNTIME.block_on(RUNTIME.spawn(test()));
        ended.map_err(|panic| Failed::from(panic.to_string()))?.map_err(|error| Failed::from(format!("{error:#}")))
    })
}

static API: OnceCell<Testbed> = OnceCell::const_new();

/// The control plane with a simulated node that the tests share, with our CRDs and Traefik's installed.
pub async fn api() -> Result<&'static Testbed, Error> {
    API.get_or_try_init(|| async {
        let testbed = bare(Node::Simulated).await?;
        testbed.install_traefik_crds().await?;
        testbed.install_gateway_crds().await?;
        install_crds(&testbed).await?;
        Ok(testbed)
    })
    .await
}

/// A control plane of a test's own, without any CRD.
pub async fn bare(node: Node) -> Result<Testbed, testbed::Error> {
    Testbed::start(Options { node, ..Options::default() }).await
}

/// Installs our CRDs and waits until they are served.
pub async fn install_crds(testbed: &Testbed) -> Outcome {
    let api: Api<CustomResourceDefinition> = Api::all(testbed.client("tester")?);
    for crd in aiscope_operator::api::crds() {
        let name = crd.name_any();
        api.patch(&name, &PatchParams::apply("tester").force(), &Patch::Apply(&crd)).await?;
        tokio::time::timeout(DEADLINE, wait::await_condition(api.clone(), &name, conditions::is_crd_established()))
            .await??;
    }
    Ok(())
}

/// One test's part of the cluster.
pub struct Case {
    /// The control plane.
    pub testbed: &'static Testbed,
    /// The tester's own client.
    pub client: Client,
    /// The test's namespace, which is also the name its operator goes by.
    pub namespace: String,
    /// How long anything may take that is waited for.
    pub patience: Duration,
}

impl Case {
    /// A fresh namespace on the shared control plane.
    pub async fn new(name: &str) -> Result<Self, Error> {
        Self::on(api().await?, name).await
    }

    /// A fresh namespace on this control plane.
    pub async fn on(testbed: &'static Testbed, name: &str) -> Result<Self, Error> {
        let client = testbed.client("tester")?;
        let metadata = ObjectMeta { name: Some(name.into()), ..Default::default() };
        Api::all(client.clone()).create(&PostParams::default(), &Namespace { metadata, ..Default::default() }).await?;
        Ok(Self { testbed, client, namespace: name.into(), patience: DEADLINE })
    }

    /// Starts an operator for this namespace alone, with default options.
    pub fn operator(&self) -> Running {
        self.operator_with(Platform::default(), &[])
    }

    /// Starts an operator for this namespace and `others`.
    pub fn operator_with(&self, platform: Platform, others: &[&str]) -> Running {
        let mut namespaces = vec![self.namespace.clone()];
        namespaces.extend(others.iter().map(|&n| n.to_owned()));
        let client = self.testbed.client(&self.agent()).expect("a client");
        let stop = CancellationToken::new();
        let operator = kinds::register(Operator::new(client, namespaces), &Arc::new(platform));
        Running { task: tokio::spawn(operator.run(stop.clone())), stop }
    }

    /// The operator's User-Agent.
    pub fn agent(&self) -> String {
        format!("operator/{}", self.namespace)
    }

    /// What the operator has requested so far, without lists and watches.
    pub fn requests(&self) -> Result<Vec<Request>, testbed::Error> {
        let mut requests = self.testbed.requests(&self.agent())?;
        requests.retain(|r| !matches!(r.verb.as_str(), "list" | "watch"));
        Ok(requests)
    }

    /// Typed access to this namespace.
    pub fn all<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Untyped access to this namespace.
    pub fn dynamic(&self, ar: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, ar)
    }

    /// Applies a `TrackingServer` as a GitOps tool would.
    pub async fn serve(&self, name: &str, spec: Value) -> kube::Result<TrackingServer> {
        self.apply(name, spec).await
    }

    /// Applies a resource of any kind as a GitOps tool would.
    pub async fn apply<W: Workload>(&self, name: &str, spec: Value) -> kube::Result<W> {
        let body = serde_json::json!({
            "apiVersion": W::api_version(&()), "kind": W::kind(&()), "metadata": { "name": name }, "spec": spec,
        });
        self.all::<W>().patch(name, &gitops(), &Patch::Apply(&body)).await
    }

    /// Runs the real kubectl in this namespace and returns what it prints.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, Error> {
        let mut command = tokio::process::Command::new(self.testbed.tool("kubectl"));
        command.env("KUBECONFIG", self.testbed.kubeconfig()).args(["--namespace", &self.namespace]).args(arguments);
        let output = command.output().await?;
        if !output.status.success() {
            return Err(format!("kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// What `aiscope-operator render` prints for a resource.
    pub async fn render(&self, server: &TrackingServer) -> Result<Vec<Value>, Error> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), serde_json::to_string(server)?)?;
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_aiscope-operator"));
        let output = command.args(["render", "-o", "json", "-f"]).arg(file.path()).output().await?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let list: Value = serde_json::from_slice(&output.stdout)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until an object is as wanted, and returns it.
    pub async fn until<K>(&self, name: &str, what: &str, is: impl Fn(&K) -> bool) -> Result<K, Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Known,
    {
        until_within(self.patience, self.all(), name, what, move |object: Option<&K>| object.is_some_and(&is))
            .await?
            .ok_or(format!("{name} is gone").into())
    }

    /// Waits until an object is gone.
    pub async fn until_gone<K>(&self, name: &str) -> Outcome
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Known,
    {
        until_within(self.patience, self.all::<K>(), name, "gone", |o: Option<&K>| o.is_none()).await.map(drop)
    }

    /// Waits until a `TrackingServer` is Ready at its current generation.
    pub async fn until_ready(&self, name: &str) -> Result<TrackingServer, Error> {
        self.until_stands(name).await
    }

    /// Waits until a resource of any kind is Ready at its current generation.
    pub async fn until_stands<W: Workload>(&self, name: &str) -> Result<W, Error> {
        self.until(name, "Ready", |resource: &W| holds(resource, "Ready", "True")).await
    }

    /// Waits until a condition of a `TrackingServer` is True with this reason, at its current generation.
    pub async fn until_reason(&self, name: &str, type_: &str, reason: &str) -> Result<TrackingServer, Error> {
        self.until_told(name, type_, reason).await
    }

    /// The same for a resource of any kind.
    pub async fn until_told<W: Workload>(&self, name: &str, type_: &str, reason: &str) -> Result<W, Error> {
        let what = format!("{type_}=True ({reason})");
        self.until(name, &what, |resource: &W| {
            holds(resource, type_, "True") && condition(resource, type_).is_some_and(|c| c.reason == reason)
        })
        .await
    }

    /// Waits until the operator has gone `quiet` without a request other than list and watch.
    pub async fn until_quiet(&self, quiet: Duration) -> Outcome {
        let mut before = self.requests()?.len();
        loop {
            tokio::time::sleep(quiet).await;
            let now = self.requests()?.len();
            if now == before {
                return Ok(());
            }
            before = now;
        }
    }
}

/// What every API type can do.
pub trait Known: Clone + std::fmt::Debug + Serialize + DeserializeOwned + Send + 'static {}
impl<T: Clone + std::fmt::Debug + Serialize + DeserializeOwned + Send + 'static> Known for T {}

/// Waits until an object (`None`: it is not there) is as wanted; tells how it was when the time was over.
pub async fn until<K>(api: Api<K>, name: &str, what: &str, is: impl Fn(Option<&K>) -> bool) -> Result<Option<K>, Error>
where
    K: Resource + Known,
{
    until_within(DEADLINE, api, name, what, is).await
}

/// [`until`] with a deadline of its own.
pub async fn until_within<K>(
    deadline: Duration,
    api: Api<K>,
    name: &str,
    what: &str,
    is: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>, Error>
where
    K: Resource + Known,
{
    if let Ok(object) = tokio::time::timeout(deadline, wait::await_condition(api.clone(), name, is)).await {
        return Ok(object?);
    }
    let mut last = api.get_opt(name).await?;
    if let Some(object) = &mut last {
        object.managed_fields_mut().clear();
    }
    Err(format!("{name} is not {what} after {deadline:?}, but {}", serde_json::to_string(&last)?).into())
}

/// A condition of a resource.
pub fn condition<'a, W: Workload>(resource: &'a W, type_: &str) -> Option<&'a Condition> {
    resource.status()?.conditions().iter().find(|c| c.type_ == type_)
}

/// A condition has this status at the current generation.
pub fn holds<W: Workload>(resource: &W, type_: &str, status: &str) -> bool {
    condition(resource, type_)
        .is_some_and(|c| c.status == status && c.observed_generation == resource.meta().generation)
}

/// How Flux and Argo CD apply.
pub fn gitops() -> PatchParams {
    PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply("gitops").force() }
}

/// An operator in this process.
pub struct Running {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Running {
    /// Stops it as SIGTERM does.
    pub async fn stop(self) -> Outcome {
        self.stop.cancel();
        Ok(tokio::time::timeout(DEADLINE, self.task).await??)
    }
}

/// The least a `TrackingServer` needs.
pub fn minimal() -> Value {
    serde_json::json!({ "size": 1, "image": "mlflow:3.17.2", "url": "http://ml.example.com/x" })
}

/// A throw-away certificate for a host, and its key.
pub fn certificate(host: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed([host.to_owned()]).expect("a certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// Traefik's route.
pub fn ingress_route() -> ApiResource {
    kind("IngressRoute")
}

/// The Gateway API's route.
pub fn http_route() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "HTTPRoute"))
}

/// Traefik's middleware.
pub fn middleware() -> ApiResource {
    kind("Middleware")
}

fn kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("traefik.io", "v1alpha1", kind))
}

/// The kind of an untyped object.
pub fn kind_of(object: &DynamicObject) -> Result<ApiResource, Error> {
    let types = object.types.as_ref().ok_or("no apiVersion and kind")?;
    Ok(ApiResource::from_gvk(&GroupVersionKind::try_from(types)?))
}
