use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::rendering::render_page;

/// Every verb has a sample, each of which becomes JSON and is the same when it is read again.
#[test]
fn every_event_is_read_as_it_was_written() {
    let samples = samples::all();
    for event in &samples {
        let data = event.data();
        assert!(data.is_object(), "{event:?}");
        assert_eq!(Event::parse(event.verb(), event.object(), &data).as_ref(), Ok(event), "{data}");
    }
    let shown: BTreeSet<&str> = samples.iter().map(Event::verb).collect();
    let listed: Vec<&str> = Event::NOUNS.iter().flat_map(|(_, verbs)| *verbs).map(|(verb, _)| *verb).collect();
    assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len(), "a verb has one meaning");
    assert_eq!(shown, listed.into_iter().collect(), "every verb has a sample");
}

/// What other programs recorded does not pass for an event that this one knows, but fields that were added do.
#[test]
fn foreign_events_are_told_apart() {
    let read = |verb: &str, object: &str, data: Value| Event::parse(verb, object, &data);
    assert_eq!(read("cluster.sold", "c-000000000001", json!({})), Err(UnknownEvent::Verb("cluster.sold".into())));
    assert_eq!(read("cluster.destroy", "elsewhere", json!({})), Err(UnknownEvent::Object("elsewhere".into())));
    let why = read("cluster.destroy", "c-000000000001", json!({ "name": 7 })).unwrap_err();
    assert!(matches!(&why, UnknownEvent::Data { verb, .. } if verb == "cluster.destroy"), "{why}");
    let data = json!({ "name": "heron", "colour": "grey" });
    let known = Event::Cluster("c-000000000001".parse().unwrap(), ClusterEvent::DestroyBegun { name: "heron".into() });
    assert_eq!(read("cluster.destroy", "c-000000000001", data), Ok(known));
}

/// What is stored of an event has the keys that it always had.
#[test]
fn stored_form_is_stable() {
    let of_cluster = |event| Event::Cluster("c-000000000001".parse().unwrap(), event);
    let created = of_cluster(ClusterEvent::Created { name: "heron".into(), instance_type: "1xCPU".into(), nodes: 1 });
    assert_eq!((created.verb(), created.object()), ("cluster.create", "c-000000000001"));
    assert_eq!(created.data(), json!({ "name": "heron", "type": "1xCPU", "nodes": 1 }));
    assert_eq!(of_cluster(ClusterEvent::VolumeAttached { state: None }).data(), json!({}));
    let failed = RequestEvent::Failed {
        kind: crate::requests::RequestType::ClusterClaim,
        object: "c-000000000001".into(),
        message: None,
    };
    let failed = Event::Request("r-000000000001".parse().unwrap(), failed);
    assert_eq!(failed.data(), json!({ "type": "CLUSTER_CLAIM", "object": "c-000000000001", "message": null }));
    let cleared = |clearance| Event::Gpu("GPU-0".into(), GpuEvent::Cleared { clearance }).data();
    assert_eq!(cleared(GpuClearance::Forgotten { forgotten: true }), json!({ "forgotten": true }));
    assert_eq!(cleared(GpuClearance::Kept { reason: None }), json!({ "reason": null }));
}

#[test]
fn page_of_events_is_current() {
    let samples = samples::all();
    let mut page = "# Events\n\n\
        What happened, as `tarn admin events` and `GET /admin/event/list` show it. Rendered by the tests of\n\
        `crates/model`; do not edit.\n\n\
        An event has a number, a time, a scope (the organization that it is about, or the user without one), an actor, a\n\
        verb, an object and data. The actor is a user, with the API key, the address and the id of the call, or `engine`.\n\
        Numbers rise in the order in which changes became durable; there may be gaps. This form is stable: fields are only\n\
        added to the data, and a verb keeps its meaning. What a newer program recorded is shown as it is stored.\n"
        .to_owned();
    for (noun, verbs) in Event::NOUNS {
        let noun = noun.trim().trim_end_matches('.');
        page.push_str(&format!("\n## {noun}\n\n| verb | recorded when | data, for example |\n|---|---|---|\n"));
        for (verb, when) in *verbs {
            let data: Vec<String> = samples
                .iter()
                .filter(|event| event.verb() == *verb)
                .map(|event| format!("`{}`", event.data()))
                .collect();
            let (when, data) = (when.trim(), data.into_iter().take(2).collect::<Vec<_>>().join(" or "));
            page.push_str(&format!("| `{verb}` | {when} | {data} |\n"));
        }
    }
    render_page("events", &page);
}
