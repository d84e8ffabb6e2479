//! Rules of others that would drop what instances send: what `nft -j list ruleset` shows, judged.
//!
//! A packet has to pass the chains of everybody who looks at forwarded packets: an accept in our own table does not undo a drop
//! in another one. So a chain that drops by default is an obstacle unless it lets our interfaces pass.

use serde_json::Value;

/// A chain in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// Where it is: the family, the table and the chain, as `nft` names them.
    pub(in crate::local::examine) place: String,
    /// How it drops.
    pub(in crate::local::examine) how: &'static str,
    /// What to type so that it lets instances pass.
    pub(super) remedy: String,
}

/// A chain that looks at packets.
struct Chain<'a> {
    family: &'a str,
    table: &'a str,
    name: &'a str,
}

/// The obstacles to packets that are forwarded. `ours` is what the names of our interfaces begin with, `uplink` the interface to
/// other machines.
pub(super) fn obstacles(ruleset: &Value, ours: &str, uplink: &str) -> Vec<Obstacle> {
    let mut found = Vec::new();
    for chain in hooked(ruleset, "forward") {
        let Some(how) = drops(ruleset, chain) else { continue };
        let chain = Chain { family: text(chain, "family"), table: text(chain, "table"), name: text(chain, "name") };
        let rules = || rules(ruleset, &chain);
        let passes =
            |rule: &Value| accepts(rule) || target(rule).is_some_and(|to| ends_well(ruleset, &chain, to, MAX_JUMPS));
        let comes = rules().any(|rule| names(rule, "iifname", ours) && passes(rule));
        let goes = rules().any(|rule| names(rule, "oifname", ours) && passes(rule));
        let answers = goes || rules().any(|rule| accepts(rule) && lets_answers_pass(rule));
        if !(comes && answers) {
            let place = format!("{} {} {}", chain.family, chain.table, chain.name);
            found.push(Obstacle { place, how, remedy: remedy(ruleset, &chain, ours, uplink) });
        }
    }
    found
}

/// Whether what comes to the machine itself is dropped by default: then clients from outside may not reach the engine.
pub(super) fn closes_machine(ruleset: &Value) -> bool {
    hooked(ruleset, "input").any(|chain| drops(ruleset, chain).is_some())
}

/// The chains of others that filter at a hook. IPv6 is kept off instances, so its rules do not matter.
fn hooked<'a>(ruleset: &'a Value, hook: &'a str) -> impl Iterator<Item = &'a Value> {
    objects(ruleset, "chain").filter(move |chain| {
        text(chain, "hook") == hook
            && text(chain, "type") == "filter"
            && matches!(text(chain, "family"), "ip" | "inet" | "bridge")
            && !text(chain, "table").starts_with("tarn_")
    })
}

/// How a chain drops what no rule lets pass, if it does.
fn drops(ruleset: &Value, chain: &Value) -> Option<&'static str> {
    if text(chain, "policy") == "drop" {
        return Some("its policy is drop");
    }
    let own = Chain { family: text(chain, "family"), table: text(chain, "table"), name: text(chain, "name") };
    let last = rules(ruleset, &own).filter(|rule| text(rule, "chain") == own.name).last()?;
    // What only counts or writes a line says nothing of which packets are meant.
    let mut parts = expressions(last).filter(|part| part.get("counter").is_none() && part.get("log").is_none());
    let ends = |part: &Value| part.get("drop").is_some() || part.get("reject").is_some();
    (parts.next().is_some_and(ends) && parts.next().is_none()).then_some("its last rule drops everything")
}

/// All rules of the table that a chain is in: it may jump to any of them.
fn rules<'a>(ruleset: &'a Value, chain: &Chain<'a>) -> impl Iterator<Item = &'a Value> {
    let (family, table) = (chain.family, chain.table);
    objects(ruleset, "rule").filter(move |rule| text(rule, "family") == family && text(rule, "table") == table)
}

/// So far it is followed where rules send packets.
const MAX_JUMPS: u32 = 16;

/// The chain to which a rule sends packets.
fn target(rule: &Value) -> Option<&str> {
    expressions(rule).find_map(|part| part["jump"]["target"].as_str().or(part["goto"]["target"].as_str()))
}

/// Whether a chain, or one to which it sends everything, lets pass whatever comes to its end. firewalld sends what belongs to a zone
/// to a chain of that zone, which accepts without another word.
fn ends_well(ruleset: &Value, table: &Chain<'_>, name: &str, jumps: u32) -> bool {
    let own = |rule: &&Value| text(rule, "chain") == name;
    rules(ruleset, table).filter(own).any(|rule| {
        let mut parts = expressions(rule).filter(|part| part.get("counter").is_none() && part.get("log").is_none());
        let is_for_all = parts.next().is_some() && parts.next().is_none();
        let deeper = || target(rule).is_some_and(|to| jumps > 0 && ends_well(ruleset, table, to, jumps - 1));
        is_for_all && (accepts(rule) || deeper())
    })
}

fn accepts(rule: &Value) -> bool {
    expressions(rule).any(|part| part.get("accept").is_some())
}

/// Whether a rule is about our interfaces.
fn names(rule: &Value, key: &str, ours: &str) -> bool {
    expressions(rule).any(|part| {
        let right = part["match"]["right"].as_str().unwrap_or_default();
        // Whoever lets every interface pass, or all that begin with part of our name, lets ours pass.
        let is_ours = right
            .strip_suffix(['*', '+'])
            .map_or(right == ours, |start| ours.starts_with(start) || start.starts_with(ours));
        part["match"]["op"] != "!=" && part["match"]["left"]["meta"]["key"] == key && is_ours
    })
}

/// Whether a rule lets the answers to what was asked pass, whoever asked.
fn lets_answers_pass(rule: &Value) -> bool {
    let mut states = expressions(rule).filter(|part| part["match"]["left"]["ct"]["key"] == "state");
    let is_bound = expressions(rule).any(|part| part["match"]["left"]["meta"]["key"].is_string());
    !is_bound && states.any(|part| part["match"]["right"].to_string().contains("established"))
}

/// What to type. Programs that keep rules of their own want to be told in their own words, or forget it at their next start.
fn remedy(ruleset: &Value, chain: &Chain<'_>, ours: &str, uplink: &str) -> String {
    let Chain { family, table, name } = chain;
    let has = |wanted: &str| {
        objects(ruleset, "chain").any(|chain| text(chain, "name") == wanted && text(chain, "table") == *table)
    };
    if *table == "firewalld" {
        return format!("firewall-cmd --permanent --zone=trusted --add-interface='{ours}+' && firewall-cmd --reload");
    }
    if *family == "ip" && *table == "filter" {
        return iptables(
            if has("DOCKER-USER") { "DOCKER-USER" } else { name },
            (ours, uplink),
            has("ufw-user-forward"),
        );
    }
    format!(
        "nft insert rule {family} {table} {name} iifname '\"{ours}*\"' oifname '\"{uplink}\"' accept && \
         nft insert rule {family} {table} {name} iifname '\"{ours}*\"' oifname '\"{ours}*\"' accept && \
         nft insert rule {family} {table} {name} oifname '\"{ours}*\"' ct state established,related accept"
    )
}

/// The same for who has iptables. What nodes of a cluster say to each other goes through here where bridged packets do, and is in
/// no table of connections; clusters are kept apart by rules of our own. Only the way to other machines is opened: what is accepted before Docker's own rules reaches its
/// containers and networks as well, which tenants have no business with.
pub(super) fn iptables(chain: &str, (ours, uplink): (&str, &str), has_ufw: bool) -> String {
    let rules = format!(
        "iptables -I {chain} -i '{ours}+' -o '{uplink}' -j ACCEPT && \
         iptables -I {chain} -i '{ours}+' -o '{ours}+' -j ACCEPT && \
         iptables -I {chain} -o '{ours}+' -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    );
    if has_ufw { format!("{rules} (and in /etc/ufw/before.rules, to keep it)") } else { rules }
}

fn objects<'a>(ruleset: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    ruleset["nftables"].as_array().into_iter().flatten().filter_map(move |object| object.get(kind))
}

fn expressions(rule: &Value) -> impl Iterator<Item = &Value> {
    rule["expr"].as_array().into_iter().flatten()
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OURS: &str = "tabc123";

    fn chain(family: &str, table: &str, name: &str, hook: &str, policy: &str) -> Value {
        json!({ "chain": { "family": family, "table": table, "name": name, "type": "filter", "hook": hook, "prio": 0, "policy": policy } })
    }

    fn rule(family: &str, table: &str, chain: &str, expr: Value) -> Value {
        json!({ "rule": { "family": family, "table": table, "chain": chain, "handle": 1, "expr": expr } })
    }

    fn found(objects: &[Value]) -> Vec<Obstacle> {
        obstacles(&json!({ "nftables": objects }), OURS, "eth0")
    }

    fn interface(key: &str, name: &str) -> Value {
        json!({ "match": { "op": "==", "left": { "meta": { "key": key } }, "right": name } })
    }

    #[test]
    fn dockers_drop_is_found_with_the_chain_for_users() {
        let docker = [
            chain("ip", "filter", "FORWARD", "forward", "drop"),
            json!({ "chain": { "family": "ip", "table": "filter", "name": "DOCKER-USER" } }),
            rule("ip", "filter", "FORWARD", json!([interface("oifname", "docker0"), { "accept": null }])),
        ];
        let one = &found(&docker)[0];
        assert_eq!((one.place.as_str(), one.how), ("ip filter FORWARD", "its policy is drop"));
        assert!(
            one.remedy.starts_with("iptables -I DOCKER-USER -i 'tabc123+' -o 'eth0' -j ACCEPT && "),
            "{}",
            one.remedy
        );
        let mended = [
            &docker[..],
            &[
                rule(
                    "ip",
                    "filter",
                    "DOCKER-USER",
                    json!([interface("iifname", "tabc123*"), interface("oifname", "eth0"), { "accept": null }]),
                ),
                rule("ip", "filter", "DOCKER-USER", json!([interface("oifname", "tabc123*"), { "accept": null }])),
            ],
        ]
        .concat();
        assert_eq!(found(&mended), []);
    }

    #[test]
    fn a_table_of_nft_gets_rules_of_nft() {
        let own = chain("inet", "mine", "fwd", "forward", "drop");
        assert!(
            found(std::slice::from_ref(&own))[0]
                .remedy
                .starts_with("nft insert rule inet mine fwd iifname '\"tabc123*\"' oifname '\"eth0\"' accept")
        );
        let established = json!({ "match": { "op": "in", "left": { "ct": { "key": "state" } }, "right": ["established", "related"] } });
        let answers = rule("inet", "mine", "fwd", json!([established, { "accept": null }]));
        assert_eq!(found(&[own.clone(), answers.clone()]).len(), 1, "answers alone are not enough");
        let out = rule("inet", "mine", "fwd", json!([interface("iifname", "tabc123*"), { "accept": null }]));
        assert_eq!(found(&[own, answers, out]), []);
    }

    #[test]
    fn firewalld_rejects_at_its_end() {
        let reject = json!([{ "reject": { "type": "icmpx", "expr": "admin-prohibited" } }]);
        let found = found(&[
            chain("inet", "firewalld", "filter_FORWARD", "forward", "accept"),
            rule("inet", "firewalld", "filter_FORWARD", reject),
        ]);
        assert_eq!(found[0].how, "its last rule drops everything");
        assert!(found[0].remedy.contains("firewall-cmd"), "{found:?}");
    }

    /// What firewalld writes: zones are chosen by the interface that a packet comes from, and each has chains of its own.
    fn firewalld(trusted: &[&str]) -> Vec<Value> {
        let fw = |chain: &str, expr: Value| rule("inet", "firewalld", chain, expr);
        let to = |verb: &str, chain: &str| json!({ verb: { "target": chain } });
        let states =
            |names: Value| json!({ "match": { "op": "in", "left": { "ct": { "key": "state" } }, "right": names } });
        let mut all = vec![
            chain("inet", "firewalld", "filter_FORWARD", "forward", "accept"),
            fw("filter_FORWARD", json!([states(json!({ "set": ["established", "related"] })), { "accept": null }])),
            fw("filter_FORWARD", json!([interface("iifname", "lo"), { "accept": null }])),
            fw("filter_FORWARD", json!([states(json!("invalid")), { "drop": null }])),
            fw("filter_FORWARD", json!([to("jump", "filter_FORWARD_ZONES")])),
            fw("filter_FORWARD", json!([{ "reject": { "type": "icmpx", "expr": "admin-prohibited" } }])),
            fw("filter_FORWARD_ZONES", json!([interface("iifname", "eth0"), to("goto", "filter_FWD_public")])),
        ];
        for name in trusted {
            all.push(fw("filter_FORWARD_ZONES", json!([interface("iifname", name), to("goto", "filter_FWD_trusted")])));
        }
        all.push(fw("filter_FORWARD_ZONES", json!([to("goto", "filter_FWD_public")])));
        for zone in ["public", "trusted"] {
            let own = format!("filter_FWD_{zone}");
            for part in ["pre", "log", "deny", "allow", "post"] {
                all.push(fw(&own, json!([to("jump", &format!("{own}_{part}"))])));
            }
        }
        all.push(fw("filter_FWD_public_allow", json!([interface("oifname", "eth0"), { "accept": null }])));
        all.push(fw("filter_FWD_trusted", json!([{ "counter": { "packets": 0, "bytes": 0 } }, { "accept": null }])));
        all
    }

    #[test]
    fn firewalld_is_well_with_what_it_was_told() {
        assert_eq!(found(&firewalld(&[])).len(), 1);
        assert_eq!(found(&firewalld(&["virbr0"])).len(), 1, "somebody else is trusted");
        assert_eq!(found(&firewalld(&["tabc123*"])), [], "the advice has been followed");
        let mut public = firewalld(&[]);
        let goes = json!([interface("iifname", "tabc123*"), { "goto": { "target": "filter_FWD_public" } }]);
        public.push(rule("inet", "firewalld", "filter_FORWARD_ZONES", goes));
        assert_eq!(found(&public).len(), 1, "a zone that lets only some pass is not enough");
    }

    #[test]
    fn chains_that_send_to_each_other_come_to_an_end() {
        let round = |from: &str, to: &str| rule("inet", "mine", from, json!([{ "jump": { "target": to } }]));
        let ours = json!([interface("iifname", "tabc123*"), { "jump": { "target": "a" } }]);
        let all = [
            chain("inet", "mine", "fwd", "forward", "drop"),
            rule("inet", "mine", "fwd", ours),
            round("a", "b"),
            round("b", "a"),
        ];
        assert_eq!(found(&all).len(), 1);
    }

    #[test]
    fn what_does_not_concern_us_is_no_obstacle() {
        assert_eq!(found(&[chain("ip6", "filter", "FORWARD", "forward", "drop")]), []);
        assert_eq!(found(&[chain("inet", "tarn_zzzzzz", "forward", "forward", "drop")]), []);
        assert_eq!(found(&[chain("inet", "mine", "fwd", "forward", "accept")]), []);
        let some = json!([interface("iifname", "eth0"), { "drop": null }]);
        assert_eq!(found(&[chain("inet", "mine", "fwd", "forward", "accept"), rule("inet", "mine", "fwd", some)]), []);
        assert!(closes_machine(&json!({ "nftables": [chain("inet", "f", "input", "input", "drop")] })));
        assert!(!closes_machine(&json!({ "nftables": [{ "metainfo": {} }] })));
    }
}
