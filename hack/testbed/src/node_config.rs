//! The configuration files of containerd, CNI and kubelet.

use serde_json::{Value, json};

use crate::cgroup;
use crate::error::Error;
use crate::plan::Plan;
use crate::state;

/// What the pause image is called.
pub(crate) const PAUSE: &str = "docker.io/library/pause:testbed";

/// Writes them all.
pub(crate) fn write(plan: &Plan) -> Result<(), Error> {
    let dir = plan.dir().join("node");
    state::make_dir(&dir.join("cni"))?;
    state::write(&dir.join("containerd.toml"), containerd(plan))?;
    state::write(&dir.join("cni/10-testbed.conflist"), cni(plan).to_string())?;
    // No name servers: there is no DNS in this cluster, and the machine's would answer for strange names.
    state::write(&dir.join("resolv.conf"), "")?;
    let kubelet = serde_saphyr::to_string(&kubelet(plan)).map_err(Error::format("kubelet.yaml"))?;
    state::write(&dir.join("kubelet.yaml"), kubelet)
}

/// `restrict_oom_score_adj`: where the machine withholds `CAP_SYS_RESOURCE`, runc dies without it.
fn containerd(plan: &Plan) -> String {
    format!(
        r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#,
        plan.file("node/cni")
    )
}

/// `ptp` rather than `bridge`: between two pods of one bridge, answers of a service would bypass the address
/// translation unless the kernel filters bridges.
fn cni(plan: &Plan) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "testbed",
        "plugins": [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": plan.pod_range()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": "/run/cni-addresses",
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn kubelet(plan: &Plan) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": plan.node_ip(),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": plan.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": plan.pki("kubelet.crt"),
        "tlsPrivateKeyFile": plan.pki("kubelet.key"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup::root(&plan.name),
        "failCgroupV1": false,
        "failSwapOn": false,
        // Without an address every pod gets a warning. This one refuses at once; one that is silent would have every
        // look-up wait for twenty seconds.
        "clusterDNS": [plan.host_address()],
        "clusterDomain": "cluster.local",
        "resolvConf": plan.file("node/resolv.conf"),
        "maxPods": 200,
        "serializeImagePulls": false,
        // Images come from archives; collected ones could not be pulled again.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
                         "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "volumePluginDir": "/var/lib/kubelet/plugins-volume",
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Node;

    #[test]
    fn every_address_is_of_the_slot() {
        let plan = Plan {
            name: "a".to_owned(),
            slot: 9,
            node: Node::Real,
            audit: true,
            apiserver: Vec::new(),
            tools: BTreeMap::new(),
            stages: Vec::new(),
            images: Vec::new(),
        };
        assert_eq!(cni(&plan)["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.232.9.0/24");
        assert_eq!(kubelet(&plan)["address"], "10.231.9.2");
        assert_eq!(kubelet(&plan)["cgroupRoot"], "/aiscope-testbed-a");
        assert!(containerd(&plan).contains("restrict_oom_score_adj = true"));
    }
}
