//! PURE: what to do about each reason, in a sentence for the terminal. The README says the same at more length.

use crate::engine::reason as is;

/// The next step for a resource whose condition has this reason; `None` when there is nothing to do.
#[must_use]
pub fn remedy(reason: &str) -> Option<&'static str> {
    Some(match reason {
        is::READY | is::AS_EXPECTED | is::SCALED_TO_ZERO => return None,
        is::IDLE => "wake it with the command in the message, or change its spec",
        is::PROGRESSING | is::TERMINATING => "wait; the message has the pod's own words",
        is::INVALID_SPEC => "correct the field that the message names",
        is::INVALID_CERTIFICATE => "give cert and key together, in PEM, one belonging to the other",
        is::CERTIFICATE_EXPIRED => "renew the certificate",
        is::EXPIRES_WITHIN_30_DAYS | is::EXPIRES_WITHIN_7_DAYS => "renew the certificate in time",
        is::CERTIFICATE_HOST_MISMATCH => "have the certificate made for the URL's host, as a SAN",
        is::SECRET_MISSING => "create the Secret that the message names, with its key",
        is::TRACKING_SERVER_MISSING => "create the tracking server, or remove trackingServerRef",
        is::VOLUME_CANNOT_SHRINK | is::VOLUME_CLASS_IMMUTABLE => {
            "put the old value back, or copy the data to a new resource"
        }
        is::VOLUME_PENDING => "see why the claim is not bound: kubectl describe pvc NAME",
        is::NOT_OWNED => "rename the resource, or remove the object in its way",
        is::ROUTE_CONFLICT => "change spec.url, or have the other's changed",
        is::HOST_NOT_ALLOWED => "change spec.url, or have the namespace's annotation aiscope.io/allowed-hosts changed",
        is::PROXY_UNKNOWN => "give the operator --proxy-namespace or --proxy-network",
        is::ROUTE_KIND_MISSING => "install the ingress controller's CRDs, or run the operator with another --ingress",
        is::ROUTE_NOT_ACCEPTED => "see that the Gateway exists and admits routes of this namespace",
        is::PROGRESS_DEADLINE_EXCEEDED => "see the pod's words in the message: image, crash, no room",
        is::REJECTED => "see the API server's words in the message: policy, quota, permission",
        is::REQUEST_FAILED => "nothing, it is tried again; if it lasts, see the API server",
        is::PAUSED => "nothing; take spec.paused away to go on",
        is::NOT_CONNECTED | is::UNREACHABLE => "see that the member's API server answers from here",
        is::CREDENTIALS_REFUSED | is::CREDENTIALS_EXPIRING => "put new credentials into the kubeconfig",
        is::RIGHTS_MISSING => "grant the rights that the message names, in the member",
        is::CRDS_MISSING => "install the CRDs in the member, or run the operator with --install-crds",
        is::DUPLICATE_MEMBER => "delete one of the two Clusters",
        is::KUBECONFIG_INVALID
        | is::KUBECONFIG_NO_CONTEXT
        | is::KUBECONFIG_EXEC
        | is::KUBECONFIG_AUTH_PROVIDER
        | is::KUBECONFIG_TOKEN_FILE
        | is::KUBECONFIG_CERTIFICATE_FILE
        | is::KUBECONFIG_KEY_FILE
        | is::KUBECONFIG_CA_FILE
        | is::KUBECONFIG_PROXY
        | is::KUBECONFIG_INSECURE
        | is::KUBECONFIG_BASIC_AUTH
        | is::KUBECONFIG_CREDENTIALS => "make the kubeconfig anew, as the message says",
        // Of another version.
        _ => "see the message, and the README of the operator's version",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_remedy_or_needs_none() {
        let source = include_str!("../engine/reason.rs");
        let reasons = source.lines().filter(|line| line.starts_with("pub const")).filter_map(|l| l.split('"').nth(1));
        let unknown = remedy("no such reason");
        let without: Vec<&str> = reasons.filter(|reason| remedy(reason) == unknown).collect();
        assert!(without.is_empty(), "{without:?}");
    }
}
