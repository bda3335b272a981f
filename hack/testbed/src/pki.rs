//! The certificates and kubeconfigs of one testbed, from its own authority.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use crate::error::Error;
use crate::state;

/// A certificate authority and where its files go.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
}

impl Authority {
    /// Makes a new authority; writes `ca.crt` and `ca.key`.
    pub(crate) fn create(dir: &Path) -> Result<Self, Error> {
        state::make_dir(dir)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "testbed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let authority = Self { issuer, dir: dir.to_owned() };
        state::write(&dir.join("ca.crt"), authority.issuer.pem())?;
        secret(&dir.join("ca.key"), &authority.issuer.key().serialize_pem())?;
        Ok(authority)
    }

    /// Writes `NAME.crt` and `NAME.key`, good for serving on these hosts.
    pub(crate) fn serving(&self, name: &str, hosts: &[String]) -> Result<(), Error> {
        let mut params = CertificateParams::new(hosts.to_vec())?;
        params.distinguished_name.push(DnType::CommonName, name);
        // etcd's own gateway presents its serving certificate to itself.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        state::write(&self.dir.join(format!("{name}.crt")), certificate.pem())?;
        secret(&self.dir.join(format!("{name}.key")), &key.serialize_pem())
    }

    /// A client certificate and its key in PEM.
    fn client(&self, user: &str, group: &str) -> Result<(String, String), Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }

    /// Writes a client certificate as files.
    pub(crate) fn client_files(&self, name: &str, user: &str, group: &str) -> Result<(), Error> {
        let (certificate, key) = self.client(user, group)?;
        state::write(&self.dir.join(format!("{name}.crt")), certificate)?;
        secret(&self.dir.join(format!("{name}.key")), &key)
    }

    /// Writes a kubeconfig that needs no other file.
    pub(crate) fn kubeconfig(&self, path: &Path, server: &str, user: &str, group: &str) -> Result<(), Error> {
        let (certificate, key) = self.client(user, group)?;
        let data = |pem: String| ByteString(pem.into_bytes());
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": {
                "server": server, "certificate-authority-data": data(self.issuer.pem()),
            }}],
            "users": [{"name": user, "user": {"client-certificate-data": data(certificate), "client-key-data": data(key)}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "current-context": "testbed",
        });
        secret(path, &serde_saphyr::to_string(&config).map_err(Error::format("kubeconfig"))?)
    }
}

/// Writes the key pair that signs service account tokens: `NAME.key` and `NAME.pub`.
pub(crate) fn signing_key(dir: &Path, name: &str) -> Result<(), Error> {
    let key = KeyPair::generate()?;
    secret(&dir.join(format!("{name}.key")), &key.serialize_pem())?;
    state::write(&dir.join(format!("{name}.pub")), key.public_key_pem())
}

/// Names for a certificate: addresses and host names alike.
pub(crate) fn hosts(names: &[&str], addresses: &[IpAddr]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).chain(addresses.iter().map(ToString::to_string)).collect()
}

/// Writes a file that only its owner reads.
fn secret(path: &Path, content: &str) -> Result<(), Error> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let _ = std::fs::remove_file(path);
    let mut file =
        std::fs::File::options().write(true).create_new(true).mode(0o600).open(path).map_err(Error::file(path))?;
    file.write_all(content.as_bytes()).map_err(Error::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_needs_no_other_file_and_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = std::env::temp_dir().join(format!("testbed-pki-{}", std::process::id()));
        let authority = Authority::create(&dir).unwrap();
        let path = dir.join("kubeconfig");
        authority.kubeconfig(&path, "https://127.0.0.1:1", "admin", "system:masters").unwrap();
        let config = kube::config::Kubeconfig::read_from(&path).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("testbed"));
        assert!(config.clusters[0].cluster.as_ref().unwrap().certificate_authority_data.is_some());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
