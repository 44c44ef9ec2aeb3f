//! Law 1 where a storage server does a part of the work: offloaded samples have the bytes of those prepared here.

use feedline_data::plan::{Policy, Workers};

use super::compare::Pair;
use super::report::{Checked, Ended};
use super::stream::collect;
use super::subject::{Subject, Variant};
use super::values::Looked;

/// Compares every policy with doing all the work here.
pub(super) fn check(subject: &Subject<'_>, looked: &Looked) -> Checked {
    if subject.plan.source().peer().is_none() {
        let why = "samples do not come from a storage server (feedline://)";
        return Err(Ended::Silent(why.to_owned()));
    }
    if subject.plan.sequence().reservoir().is_some() {
        return Err(Ended::Silent("what is read in sequence is prepared here".to_owned()));
    }
    if let Some(who) = &subject.unstable {
        return Err(Ended::Silent(format!("bytes change by themselves: {who}")));
    }
    let strict = &looked.strict().0;
    let with = |policy: Policy| -> Variant {
        strict.with(&format!("offload {policy}"), |_, config| {
            (config.offload, config.cache) = (policy, None);
            config.num_workers = Workers::Count(2);
        })
    };
    let local = with(Policy::None);
    let expected = collect(subject, &local)?.0;
    let mut said = Vec::new();
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::None) {
        let variant = with(policy);
        let (found, snapshot) = collect(subject, &variant)?;
        if let Some(difference) = subject.differ(&expected, &found) {
            let problem = "an offloaded sample has not the bytes of one that is prepared here";
            let pair = Pair { law: 1, problem, expected: &local, found: &variant, fields: &expected.fields };
            return Err(subject.explain(&pair, difference)?.into());
        }
        let forms = snapshot.store.candidates.into_iter();
        let prepared: u64 = forms.filter(|(form, _)| form != "raw").map(|(_, samples)| samples).sum();
        said.push(format!("{policy} ({prepared} prepared there)"));
    }
    Ok(format!("the same bytes with offload {}, as with none", said.join(", ")))
}
