//! Finds foreign rules that would drop the traffic of instances, in the output of `nft -j list ruleset`.
//!
//! A forwarded packet passes the chains of all tables: an accept in our own table does not undo a drop in another one.
//! So a chain that drops by default is an obstacle unless it accepts our interfaces.

use serde_json::Value;

/// A chain that drops traffic of instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// The family, the table and the chain, as `nft` names them.
    pub(in crate::local::examine) place: String,
    pub(in crate::local::examine) how: &'static str,
    /// The command that makes it accept traffic of instances.
    pub(super) remedy: String,
}

/// A chain in a table.
struct Chain<'a> {
    family: &'a str,
    table: &'a str,
    name: &'a str,
}

impl Chain<'_> {
    fn of(chain: &Value) -> Chain<'_> {
        let field = |name| string_field(chain, name);
        Chain { family: field("family"), table: field("table"), name: field("name") }
    }
}

/// Returns the obstacles to forwarded packets. `ours` is the name prefix of our interfaces, `uplink` the interface to
/// other hosts.
pub(super) fn find_obstacles(ruleset: &Value, ours: &str, uplink: &str) -> Vec<Obstacle> {
    let mut found = Vec::new();
    for chain in hooked_chains(ruleset, "forward") {
        let Some(how) = drop_reason(ruleset, chain) else { continue };
        let chain = Chain::of(chain);
        let own_rules = || table_rules(ruleset, &chain);
        let passes = |rule: &Value| {
            rule_accepts(rule) || jump_target(rule).is_some_and(|to| chain_accepts(ruleset, &chain, to, MAX_JUMPS))
        };
        let comes = own_rules().any(|rule| names_interface(rule, "iifname", ours) && passes(rule));
        let goes = own_rules().any(|rule| names_interface(rule, "oifname", ours) && passes(rule));
        let answers = goes || own_rules().any(|rule| rule_accepts(rule) && accepts_replies(rule));
        if !(comes && answers) {
            let place = format!("{} {} {}", chain.family, chain.table, chain.name);
            found.push(Obstacle { place, how, remedy: remedy_command(ruleset, &chain, ours, uplink) });
        }
    }
    found
}

/// Returns whether traffic to the host itself is dropped by default: then clients from other hosts may not reach the
/// engine.
pub(super) fn closes_host(ruleset: &Value) -> bool {
    hooked_chains(ruleset, "input").any(|chain| drop_reason(ruleset, chain).is_some())
}

/// Returns the foreign filter chains at a hook. Instances have no IPv6, so its rules do not matter.
fn hooked_chains<'a>(ruleset: &'a Value, hook: &'a str) -> impl Iterator<Item = &'a Value> {
    nft_objects(ruleset, "chain").filter(move |chain| {
        string_field(chain, "hook") == hook
            && string_field(chain, "type") == "filter"
            && matches!(string_field(chain, "family"), "ip" | "inet" | "bridge")
            && !string_field(chain, "table").starts_with("tarn_")
    })
}

/// Returns how a chain drops what no rule accepts, if it does.
fn drop_reason(ruleset: &Value, chain: &Value) -> Option<&'static str> {
    if string_field(chain, "policy") == "drop" {
        return Some("its policy is drop");
    }
    let own = Chain::of(chain);
    let last = table_rules(ruleset, &own).filter(|rule| string_field(rule, "chain") == own.name).last()?;
    // Counters and log statements do not restrict which packets match.
    let mut parts = rule_expressions(last).filter(|part| part.get("counter").is_none() && part.get("log").is_none());
    let ends = |part: &Value| part.get("drop").is_some() || part.get("reject").is_some();
    (parts.next().is_some_and(ends) && parts.next().is_none()).then_some("its last rule drops everything")
}

/// Returns all rules of the table of a chain, which may jump to any of them.
fn table_rules<'a>(ruleset: &'a Value, chain: &Chain<'a>) -> impl Iterator<Item = &'a Value> {
    let (family, table) = (chain.family, chain.table);
    nft_objects(ruleset, "rule")
        .filter(move |rule| string_field(rule, "family") == family && string_field(rule, "table") == table)
}

/// How many jumps are followed.
const MAX_JUMPS: u32 = 16;

/// Returns the chain that a rule jumps to.
fn jump_target(rule: &Value) -> Option<&str> {
    rule_expressions(rule).find_map(|part| part["jump"]["target"].as_str().or(part["goto"]["target"].as_str()))
}

/// Returns whether a chain, or a chain that it always jumps to, accepts what reaches its end. firewalld sends the
/// traffic of a zone to a chain of that zone, which accepts unconditionally.
fn chain_accepts(ruleset: &Value, table: &Chain<'_>, name: &str, jumps: u32) -> bool {
    let own = |rule: &&Value| string_field(rule, "chain") == name;
    table_rules(ruleset, table).filter(own).any(|rule| {
        let mut parts =
            rule_expressions(rule).filter(|part| part.get("counter").is_none() && part.get("log").is_none());
        let is_for_all = parts.next().is_some() && parts.next().is_none();
        let deeper = || jump_target(rule).is_some_and(|to| jumps > 0 && chain_accepts(ruleset, table, to, jumps - 1));
        is_for_all && (rule_accepts(rule) || deeper())
    })
}

fn rule_accepts(rule: &Value) -> bool {
    rule_expressions(rule).any(|part| part.get("accept").is_some())
}

/// Returns whether a rule matches our interfaces.
fn names_interface(rule: &Value, key: &str, ours: &str) -> bool {
    rule_expressions(rule).any(|part| {
        let right = part["match"]["right"].as_str().unwrap_or_default();
        // A rule for all interfaces, or for a prefix of our names, matches ours.
        let is_ours = right
            .strip_suffix(['*', '+'])
            .map_or(right == ours, |start| ours.starts_with(start) || start.starts_with(ours));
        part["match"]["op"] != "!=" && part["match"]["left"]["meta"]["key"] == key && is_ours
    })
}

/// Returns whether a rule accepts replies regardless of the interface.
fn accepts_replies(rule: &Value) -> bool {
    let mut states = rule_expressions(rule).filter(|part| part["match"]["left"]["ct"]["key"] == "state");
    let is_bound = rule_expressions(rule).any(|part| part["match"]["left"]["meta"]["key"].is_string());
    !is_bound && states.any(|part| part["match"]["right"].to_string().contains("established"))
}

/// Returns the command to run. Programs with their own rule storage need their own commands, or the change is lost at
/// their next start.
fn remedy_command(ruleset: &Value, chain: &Chain<'_>, ours: &str, uplink: &str) -> String {
    let Chain { family, table, name } = chain;
    let has = |wanted: &str| {
        nft_objects(ruleset, "chain")
            .any(|chain| string_field(chain, "name") == wanted && string_field(chain, "table") == *table)
    };
    if *table == "firewalld" {
        return format!("firewall-cmd --permanent --zone=trusted --add-interface='{ours}+' && firewall-cmd --reload");
    }
    if *family == "ip" && *table == "filter" {
        return iptables_remedy(
            if has("DOCKER-USER") { "DOCKER-USER" } else { name },
            ours,
            uplink,
            has("ufw-user-forward"),
        );
    }
    format!(
        "nft insert rule {family} {table} {name} iifname '\"{ours}*\"' oifname '\"{uplink}\"' accept && \
         nft insert rule {family} {table} {name} iifname '\"{ours}*\"' oifname '\"{ours}*\"' accept && \
         nft insert rule {family} {table} {name} oifname '\"{ours}*\"' ct state established,related accept"
    )
}

/// Returns the commands for iptables. Traffic between nodes of a cluster passes through here where bridged packets do,
/// and is not tracked; our own rules isolate clusters. Only the path to other hosts is opened: what is accepted before
/// Docker's own rules also reaches its containers and networks, which tenants must not.
pub(super) fn iptables_remedy(chain: &str, ours: &str, uplink: &str, has_ufw: bool) -> String {
    let rules = format!(
        "iptables -I {chain} -i '{ours}+' -o '{uplink}' -j ACCEPT && \
         iptables -I {chain} -i '{ours}+' -o '{ours}+' -j ACCEPT && \
         iptables -I {chain} -o '{ours}+' -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    );
    if has_ufw { format!("{rules} (and in /etc/ufw/before.rules, to keep it)") } else { rules }
}

fn nft_objects<'a>(ruleset: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    ruleset["nftables"].as_array().into_iter().flatten().filter_map(move |object| object.get(kind))
}

fn rule_expressions(rule: &Value) -> impl Iterator<Item = &Value> {
    rule["expr"].as_array().into_iter().flatten()
}

fn string_field<'a>(object: &'a Value, name: &str) -> &'a str {
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
        find_obstacles(&json!({ "nftables": objects }), OURS, "eth0")
    }

    fn interface(key: &str, name: &str) -> Value {
        json!({ "match": { "op": "==", "left": { "meta": { "key": key } }, "right": name } })
    }

    #[test]
    fn docker_policy_is_an_obstacle() {
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
    fn nft_table_gets_nft_commands() {
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
    fn firewalld_reject_is_an_obstacle() {
        let reject = json!([{ "reject": { "type": "icmpx", "expr": "admin-prohibited" } }]);
        let found = found(&[
            chain("inet", "firewalld", "filter_FORWARD", "forward", "accept"),
            rule("inet", "firewalld", "filter_FORWARD", reject),
        ]);
        assert_eq!(found[0].how, "its last rule drops everything");
        assert!(found[0].remedy.contains("firewall-cmd"), "{found:?}");
    }

    /// The rules of firewalld: zones are chosen by the incoming interface, and each has its own chains.
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
    fn firewalld_zone_that_accepts_is_no_obstacle() {
        assert_eq!(found(&firewalld(&[])).len(), 1);
        assert_eq!(found(&firewalld(&["virbr0"])).len(), 1, "another interface is trusted");
        assert_eq!(found(&firewalld(&["tabc123*"])), [], "the remedy was applied");
        let mut public = firewalld(&[]);
        let goes = json!([interface("iifname", "tabc123*"), { "goto": { "target": "filter_FWD_public" } }]);
        public.push(rule("inet", "firewalld", "filter_FORWARD_ZONES", goes));
        assert_eq!(found(&public).len(), 1, "a zone that lets only some pass is not enough");
    }

    #[test]
    fn circular_jumps_terminate() {
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
    fn unrelated_chains_are_no_obstacle() {
        assert_eq!(found(&[chain("ip6", "filter", "FORWARD", "forward", "drop")]), []);
        assert_eq!(found(&[chain("inet", "tarn_zzzzzz", "forward", "forward", "drop")]), []);
        assert_eq!(found(&[chain("inet", "mine", "fwd", "forward", "accept")]), []);
        let some = json!([interface("iifname", "eth0"), { "drop": null }]);
        assert_eq!(found(&[chain("inet", "mine", "fwd", "forward", "accept"), rule("inet", "mine", "fwd", some)]), []);
        assert!(closes_host(&json!({ "nftables": [chain("inet", "f", "input", "input", "drop")] })));
        assert!(!closes_host(&json!({ "nftables": [{ "metainfo": {} }] })));
    }
}
