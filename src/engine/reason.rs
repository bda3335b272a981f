//! PURE: every condition reason, one constant each. They are API: alerts and scripts match them.

/// Every wanted child stands at its current generation and is healthy.
pub const READY: &str = "Ready";
/// `size: 0` is what the user asked for.
pub const SCALED_TO_ZERO: &str = "ScaledToZero";
/// Nobody used it for as long as its spec allows, so it is stopped.
pub const IDLE: &str = "Idle";
/// Children were written or are rolling out.
pub const PROGRESSING: &str = "Progressing";
/// A child of this or an earlier resource of the same name is still being deleted.
pub const TERMINATING: &str = "Terminating";
/// Nothing is wrong.
pub const AS_EXPECTED: &str = "AsExpected";
/// A field of the spec is not understood; no child is written.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// `cert` without `key` (or the reverse), PEM that does not parse, or a key that is not the certificate's.
pub const INVALID_CERTIFICATE: &str = "InvalidCertificate";
/// The certificate's notAfter has passed.
pub const CERTIFICATE_EXPIRED: &str = "CertificateExpired";
/// The certificate ends within 30 days.
pub const EXPIRES_WITHIN_30_DAYS: &str = "ExpiresWithin30Days";
/// The certificate ends within 7 days.
pub const EXPIRES_WITHIN_7_DAYS: &str = "ExpiresWithin7Days";
/// The certificate is not for the host of `url`.
pub const CERTIFICATE_HOST_MISMATCH: &str = "CertificateHostMismatch";
/// The wanted volume is smaller than the one that exists.
pub const VOLUME_CANNOT_SHRINK: &str = "VolumeCannotShrink";
/// The wanted storage class is not the volume's.
pub const VOLUME_CLASS_IMMUTABLE: &str = "VolumeClassImmutable";
/// The volume is not bound.
pub const VOLUME_PENDING: &str = "VolumePending";
/// An object of a child's name belongs to someone else.
pub const NOT_OWNED: &str = "NotOwned";
/// An older resource holds the same host and an overlapping path.
pub const ROUTE_CONFLICT: &str = "RouteConflict";
/// The namespace may not name the host.
pub const HOST_NOT_ALLOWED: &str = "HostNotAllowed";
/// The CRD of the chosen route back end is not installed.
pub const ROUTE_KIND_MISSING: &str = "RouteKindMissing";
/// The Deployment did not progress within its deadline.
pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
/// The API server refused a write.
pub const REJECTED: &str = "Rejected";
/// The API server could not be reached or failed; it is tried again.
pub const REQUEST_FAILED: &str = "RequestFailed";
/// A network policy is asked for, and the operator does not know where the proxy of the routes is.
pub const PROXY_UNKNOWN: &str = "ProxyUnknown";
/// A referenced Secret does not exist yet.
pub const SECRET_MISSING: &str = "SecretMissing";
/// The tracking server that a resource refers to does not exist.
pub const TRACKING_SERVER_MISSING: &str = "TrackingServerMissing";
/// The Gateway does not serve the route, or has not said so yet.
pub const ROUTE_NOT_ACCEPTED: &str = "RouteNotAccepted";
/// Of a member: its spec asks for that no controller runs there.
pub const PAUSED: &str = "Paused";
/// Nothing is known of it: no connection could be tried.
pub const NOT_CONNECTED: &str = "NotConnected";
/// The member's API server does not answer.
pub const UNREACHABLE: &str = "Unreachable";
/// The member's API server does not accept the credentials.
pub const CREDENTIALS_REFUSED: &str = "CredentialsRefused";
/// The credentials may do less in the member than the controllers need.
pub const RIGHTS_MISSING: &str = "RightsMissing";
/// CRDs of this version are not installed in the member.
pub const CRDS_MISSING: &str = "CRDsMissing";
/// An older `Cluster`, or this operator itself, acts on the same cluster.
pub const DUPLICATE_MEMBER: &str = "DuplicateMember";
/// The credentials end soon.
pub const CREDENTIALS_EXPIRING: &str = "CredentialsExpiring";
/// The kubeconfig is not one.
pub const KUBECONFIG_INVALID: &str = "KubeconfigInvalid";
/// The kubeconfig has several contexts and names none as current.
pub const KUBECONFIG_NO_CONTEXT: &str = "KubeconfigNoContext";
/// The kubeconfig would run a program.
pub const KUBECONFIG_EXEC: &str = "KubeconfigExec";
/// The kubeconfig needs an authentication plugin.
pub const KUBECONFIG_AUTH_PROVIDER: &str = "KubeconfigAuthProvider";
/// The kubeconfig reads a token from a file.
pub const KUBECONFIG_TOKEN_FILE: &str = "KubeconfigTokenFile";
/// The kubeconfig reads a client certificate from a file.
pub const KUBECONFIG_CERTIFICATE_FILE: &str = "KubeconfigCertificateFile";
/// The kubeconfig reads a private key from a file.
pub const KUBECONFIG_KEY_FILE: &str = "KubeconfigKeyFile";
/// The kubeconfig reads the certificate authority from a file.
pub const KUBECONFIG_CA_FILE: &str = "KubeconfigCAFile";
/// The kubeconfig goes through a proxy.
pub const KUBECONFIG_PROXY: &str = "KubeconfigProxy";
/// The kubeconfig does not check whom it talks to, or talks in the clear.
pub const KUBECONFIG_INSECURE: &str = "KubeconfigInsecure";
/// The kubeconfig has a user name and password.
pub const KUBECONFIG_BASIC_AUTH: &str = "KubeconfigBasicAuth";
/// The kubeconfig's credentials have ended, or are not understood.
pub const KUBECONFIG_CREDENTIALS: &str = "KubeconfigCredentials";

#[cfg(test)]
mod tests {
    #[test]
    fn every_reason_is_in_the_readme() {
        let readme = include_str!("../../README.md");
        let reasons = include_str!("reason.rs").lines().filter(|line| line.starts_with("pub const"));
        let missing: Vec<&str> = reasons
            .filter_map(|line| line.split('"').nth(1))
            .filter(|reason| !readme.contains(&format!("`{reason}`")))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
