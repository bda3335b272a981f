//! Routes: one back end at a time, and nobody takes another's host.

use aiscope_operator::kinds::{Ingress, Platform};
use k8s_openapi::api::networking::v1;
use kube::api::{DeleteParams, ListParams, PostParams};
use libtest_mimic::Trial;
use serde_json::json;

use crate::kit::{Case, Outcome, condition, ingress_route, middleware, minimal, trial, until};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("changing_the_ingress_controller_leaves_nothing_of_the_old_kind", switch),
        trial("of_two_that_claim_the_same_place_the_younger_waits_and_takes_over", conflict),
        trial("a_route_that_somebody_else_made_before_holds_its_place", foreign_route),
    ]
}

async fn switch() -> Outcome {
    let case = Case::new("switch").await?;
    case.serve("a", minimal()).await?;
    for ingress in [Ingress::Traefik, Ingress::Nginx, Ingress::None, Ingress::Traefik] {
        let operator = case.operator_with(Platform { ingress, ..Platform::default() }, &[]);
        let (traefik, nginx) = (ingress == Ingress::Traefik, ingress == Ingress::Nginx);
        until(case.dynamic(&ingress_route()), "a", "as wanted", |r: Option<&_>| r.is_some() == traefik).await?;
        until(case.dynamic(&middleware()), "a", "as wanted", |r: Option<&_>| r.is_some() == traefik).await?;
        until(case.all::<v1::Ingress>(), "a", "as wanted", |r: Option<&v1::Ingress>| r.is_some() == nginx).await?;
        case.until_ready("a").await?;
        case.until_quiet(std::time::Duration::from_millis(300)).await?;
        let left = case.dynamic(&middleware()).list(&ListParams::default()).await?.items.len();
        assert_eq!(left > 0, traefik);
        operator.stop().await?;
    }
    Ok(())
}

async fn conflict() -> Outcome {
    let case = Case::new("older").await?;
    let other = Case::new("younger").await?;
    let operator = case.operator_with(Platform::default(), &["younger"]);
    case.serve("a", minimal()).await?;
    case.until_ready("a").await?;
    // The age counts in whole seconds, so the younger is made in another one.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let mut below = minimal();
    below["url"] = json!("http://ML.example.com.:80/x/below/");
    other.serve("b", below.clone()).await?;
    let told = other.until_reason("b", "Stalled", "RouteConflict").await?;
    assert!(condition(&told, "Ready").is_some_and(|c| c.message.contains("TrackingServer older/a")), "{told:#?}");
    assert!(other.dynamic(&ingress_route()).get_opt("b").await?.is_none());
    // A neighbour, not a part: `/x-y` is no segment below `/x`.
    let mut beside = minimal();
    beside["url"] = json!("http://ml.example.com/x-y");
    other.serve("c", beside).await?;
    other.until_ready("c").await?;
    // The older goes elsewhere: the younger takes over.
    let mut elsewhere = minimal();
    elsewhere["url"] = json!("http://elsewhere.example.com/x");
    case.serve("a", elsewhere).await?;
    other.until_ready("b").await?;
    // The older comes back: it is still the older.
    case.serve("a", minimal()).await?;
    other.until_reason("b", "Stalled", "RouteConflict").await?;
    until(other.dynamic(&ingress_route()), "b", "gone", |r: Option<&_>| r.is_none()).await?;
    case.all::<aiscope_operator::api::TrackingServer>().delete("a", &DeleteParams::default()).await?;
    other.until_ready("b").await?;
    operator.stop().await
}

async fn foreign_route() -> Outcome {
    let case = Case::new("foreignroute").await?;
    let ingress: v1::Ingress = serde_json::from_value(json!({
        "metadata": { "name": "theirs" },
        "spec": { "rules": [{ "host": "ml.example.com", "http": { "paths": [{
            "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "s", "port": { "number": 1 } } },
        }] } }] },
    }))?;
    case.all::<v1::Ingress>().create(&PostParams::default(), &ingress).await?;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let operator = case.operator();
    case.serve("a", minimal()).await?;
    let told = case.until_reason("a", "Stalled", "RouteConflict").await?;
    assert!(condition(&told, "Ready").is_some_and(|c| c.message.contains("Ingress foreignroute/theirs")), "{told:#?}");
    case.all::<v1::Ingress>().delete("theirs", &DeleteParams::default()).await?;
    case.until_ready("a").await?;
    operator.stop().await
}
