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
