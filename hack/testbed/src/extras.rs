//! What a demo needs beside a cluster: programs that stay, a certificate, a client that knows where a host is.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::control::{self, Ask};
use crate::error::Error;
use crate::keeper::{Ending, Program};
use crate::pki::Authority;
use crate::{Testbed, Traefik, state};

/// Names at addresses, for [`Testbed::mlflow_client`]: `sh -c SCRIPT sh HOSTS COMMAND...`.
const WITH_HOSTS: &str = r#"mount --bind "$1" /etc/hosts; shift; exec "$@""#;

/// A throw-away certificate: made now, trusted by nobody.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// PEM of the authority that signed it: what a client has to trust.
    pub ca: PathBuf,
    /// PEM of the certificate.
    pub certificate: PathBuf,
    /// PEM of its key.
    pub key: PathBuf,
}

impl Certificate {
    /// Makes one for these hosts, as files in a directory.
    ///
    /// # Errors
    /// When the directory cannot be written, or a name cannot be in a certificate.
    pub fn create(dir: &Path, hosts: &[String]) -> Result<Self, Error> {
        Authority::create(dir)?.serving("server", hosts)?;
        Ok(Self { ca: dir.join("ca.crt"), certificate: dir.join("server.crt"), key: dir.join("server.key") })
    }
}

impl Testbed {
    /// Keeps a program running until the testbed ends; returns its log.
    ///
    /// # Errors
    /// When the testbed has ended or the program cannot be started.
    pub fn keep(&self, name: &str, argv: Vec<String>) -> Result<PathBuf, Error> {
        let log = self.plan.log(name);
        let env = [("KUBECONFIG".to_owned(), self.kubeconfig().display().to_string())].into();
        let program = Program { name: name.to_owned(), argv, env, log: log.clone(), ending: Ending::Terminate };
        control::ask(self.dir(), &Ask::Start(Box::new(program)))?;
        Ok(log)
    }

    /// [`Testbed::mlflow_python`], with these hosts at these addresses.
    ///
    /// # Errors
    /// When not root, or when the image cannot be built.
    pub async fn mlflow_client(&self, hosts: &[(&str, IpAddr)]) -> Result<std::process::Command, Error> {
        let python = self.mlflow_python().await?;
        let mut lines = vec!["127.0.0.1 localhost".to_owned()];
        lines.extend(hosts.iter().map(|(host, address)| format!("{address} {host}")));
        let key = crate::cache::key(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let file = self.dir().join(format!("hosts-{key}"));
        state::write(&file, lines.join("\n") + "\n")?;
        let mut client = std::process::Command::new("unshare");
        client.args(["--mount", "--propagation", "private", "sh", "-ec", WITH_HOSTS, "sh"]).arg(file);
        client.arg(python.get_program()).args(python.get_args());
        Ok(client)
    }
}

impl Traefik {
    /// Lets it run until the testbed ends.
    pub fn detach(self) {
        // Dropping is what stops it.
        std::mem::forget(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_signed_by_the_authority_beside_it() {
        let dir = std::env::temp_dir().join(format!("testbed-certificate-{}", std::process::id()));
        let made = Certificate::create(&dir, &["ml.example.com".to_owned()]).unwrap();
        for file in [&made.ca, &made.certificate, &made.key] {
            assert!(std::fs::read_to_string(file).unwrap().starts_with("-----BEGIN "), "{}", file.display());
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
