//! Everything the supervisor has to know to bring a testbed up, and where its parts lie.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::{Node, state};

/// Written by whoever asks for a testbed, read by its supervisor and by those who attach to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub name: String,
    pub slot: u8,
    pub node: Node,
    pub audit: bool,
    /// Further flags for the API server.
    pub apiserver: Vec<String>,
    pub tools: BTreeMap<String, PathBuf>,
    /// kwok's stages, for a simulated node.
    pub stages: Vec<PathBuf>,
    /// Image archives a real node begins with.
    pub images: Vec<PathBuf>,
}

impl Plan {
    /// The plan in a testbed's directory.
    pub(crate) fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("plan.json");
        serde_json::from_slice(&std::fs::read(&path).map_err(Error::file(&path))?).map_err(Error::format("plan.json"))
    }

    /// Writes it there.
    pub(crate) fn write(&self) -> Result<(), Error> {
        let json = serde_json::to_vec_pretty(self).map_err(Error::format("plan.json"))?;
        state::write(&self.dir().join("plan.json"), json)
    }

    pub(crate) fn dir(&self) -> PathBuf {
        state::dir(&self.name)
    }

    /// A file in the testbed's directory, as the argument of a flag.
    pub(crate) fn file(&self, name: &str) -> String {
        self.dir().join(name).display().to_string()
    }

    /// A certificate, key or kubeconfig.
    pub(crate) fn pki(&self, name: &str) -> String {
        self.file(&format!("pki/{name}"))
    }

    pub(crate) fn log(&self, program: &str) -> PathBuf {
        self.dir().join("logs").join(format!("{program}.log"))
    }

    pub(crate) fn tool(&self, name: &str) -> String {
        self.tools.get(name).map_or_else(|| name.to_owned(), |path| path.display().to_string())
    }

    /// This machine's end of the link to the node.
    pub(crate) fn host_address(&self) -> IpAddr {
        Ipv4Addr::new(10, 231, self.slot, 1).into()
    }

    /// The node's end of that link.
    pub(crate) fn node_ip(&self) -> IpAddr {
        Ipv4Addr::new(10, 231, self.slot, 2).into()
    }

    pub(crate) fn pod_range(&self) -> String {
        format!("10.232.{}.0/24", self.slot)
    }

    /// 65,000 Services: a range of 250 ends a test with 1,000 resources.
    pub(crate) fn service_range(&self) -> String {
        format!("10.{}.0.0/16", 160 + self.slot)
    }

    /// Where the API server listens: with a real node, where pods reach it; else on the loopback address.
    pub(crate) fn server_address(&self) -> IpAddr {
        if self.node == Node::Real { self.host_address() } else { Ipv4Addr::LOCALHOST.into() }
    }

    /// What the one node is called.
    pub(crate) fn node_name(&self) -> String {
        format!("{}-node", self.name)
    }
}
