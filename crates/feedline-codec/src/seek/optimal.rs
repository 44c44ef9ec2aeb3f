//! Finds the best Huffman code for given symbol counts.
//!
//! In: how often each symbol occurs. Out: the [`Code`] with the fewest bits, including its definition: a new one, or one of the
//! standard. Codes have at most 16 bits, and none consists only of ones, as JPEG requires.

use super::huffman::Code;

const MAX_BITS: usize = 16;
/// A tree of 257 leaves is less deep than this.
const MAX_DEPTH: usize = 257;

/// How often each symbol occurs.
pub(super) type SymbolCounts = [u32; 256];

/// The cheapest of a new code and the known ones.
pub(super) fn cheapest(counts: &SymbolCounts, known: impl Iterator<Item = Code>) -> Code {
    let own = own_code(counts);
    // A new code must be sent with the data: 16 counts and its symbols. A standard code is sent by number.
    let definition = 8 * (16 + own.symbols.len() as u64);
    let bits = bits_with(&own, counts).map(|bits| bits + definition);
    let known = known.map(|code| (bits_with(&code, counts), code)).filter(|(bits, _)| bits.is_some());
    known.min_by_key(|(bits, _)| *bits).filter(|(known, _)| *known <= bits).map_or(own, |(_, code)| code)
}

/// Total bits of all symbols. `None` if one has no code.
fn bits_with(code: &Code, counts: &SymbolCounts) -> Option<u64> {
    let mut left = *counts;
    let mut bits = 0;
    for (_, len, symbol) in code.codes() {
        bits += u64::from(len) * u64::from(std::mem::take(&mut left[usize::from(symbol)]));
    }
    left.iter().all(|&count| count == 0).then_some(bits)
}

/// The code with the fewest bits for the symbols alone.
fn own_code(counts: &SymbolCounts) -> Code {
    let mut symbols: Vec<u8> = (0..=255).filter(|&symbol| counts[usize::from(symbol)] > 0).collect();
    symbols.sort_by_key(|&symbol| counts[usize::from(symbol)]);
    // One more leaf, the rarest, takes the code that consists only of ones.
    let leaves = std::iter::once(0).chain(symbols.iter().map(|&symbol| u64::from(counts[usize::from(symbol)])));
    let mut of_depth = depths(leaves.collect());
    limit(&mut of_depth);
    if let Some(deepest) = of_depth.iter_mut().rev().find(|count| **count > 0) {
        // Removes the extra leaf, which is the deepest because it is the rarest.
        *deepest -= 1;
    }
    let mut lengths = [0; 16];
    for (length, &count) in lengths.iter_mut().zip(&of_depth[1..]) {
        *length = count as u8;
    }
    symbols.reverse();
    Code { counts: lengths, symbols }
}

/// The number of leaves at each depth of the Huffman tree. `weights` must be ascending.
fn depths(mut weights: Vec<u64>) -> [u16; MAX_DEPTH + 1] {
    let leaves = weights.len();
    let mut parents = vec![0; 2 * leaves - 1];
    let (mut leaf, mut inner) = (0, leaves);
    for next in leaves..2 * leaves - 1 {
        // Inner nodes are created in ascending order too, so the lightest node is the first of either kind.
        let mut lightest = || {
            let is_leaf = leaf < leaves && (inner >= weights.len() || weights[leaf] <= weights[inner]);
            let place = if is_leaf { &mut leaf } else { &mut inner };
            *place += 1;
            parents[*place - 1] = next;
            weights[*place - 1]
        };
        let both = lightest() + lightest();
        weights.push(both);
    }
    let mut depth = vec![0; 2 * leaves - 1];
    let mut of_depth = [0; MAX_DEPTH + 1];
    // Parents have higher numbers than their children, and the root is the last node.
    for node in (0..2 * leaves - 2).rev() {
        depth[node] = depth[parents[node]] + 1;
        of_depth[depth[node]] += u16::from(node < leaves);
    }
    of_depth
}

/// Moves leaves up that are too deep, as the standard's Annex K does.
fn limit(of_depth: &mut [u16; MAX_DEPTH + 1]) {
    for depth in (MAX_BITS + 1..=MAX_DEPTH).rev() {
        while of_depth[depth] > 0 {
            let above = (1..depth - 1).rev().find(|&above| of_depth[above] > 0);
            let above = above.expect("fewer leaves than codes of 16 bits");
            // Two leaves of the deepest level: one takes the place of their parent, the other becomes a sibling of a leaf higher
            // up.
            of_depth[depth] -= 2;
            of_depth[depth - 1] += 1;
            of_depth[above + 1] += 2;
            of_depth[above] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(pairs: &[(u8, u32)]) -> SymbolCounts {
        let mut counts = [0; 256];
        for &(symbol, count) in pairs {
            counts[usize::from(symbol)] = count;
        }
        counts
    }

    /// Whether a definition is read again, as only valid ones are.
    fn is_valid(code: &Code) -> bool {
        let bytes = [&code.counts[..], &code.symbols].concat();
        Code::read(&bytes).is_some_and(|(read, rest)| read == *code && rest.is_empty())
    }

    #[test]
    fn codes_are_valid_and_as_short_as_huffmans() {
        let code = own_code(&counted(&[(7, 10), (3, 40), (200, 1), (0, 20)]));
        assert!(is_valid(&code));
        assert_eq!(code.symbols, [3, 0, 7, 200]);
        assert_eq!(bits_with(&code, &counted(&[(7, 10), (3, 40), (200, 1), (0, 20)])), Some(40 + 2 * 20 + 3 * 10 + 4));
        assert!(is_valid(&own_code(&counted(&[]))));
        assert_eq!(own_code(&counted(&[(9, 5)])).counts[0], 1, "a single symbol takes one bit");
        assert!(is_valid(&own_code(&[1; 256])));
    }

    #[test]
    fn codes_of_the_most_unequal_symbols_have_16_bits_at_most() {
        let mut counts = [0; 256];
        let (mut one, mut two) = (1_u32, 1_u32);
        for count in &mut counts[..44] {
            *count = one;
            (one, two) = (two, one + two);
        }
        let code = own_code(&counts);
        assert!(is_valid(&code));
        assert_eq!(code.symbols.len(), 44);
        assert!(bits_with(&code, &counts).is_some());
    }

    #[test]
    fn a_known_code_is_taken_where_a_definition_does_not_pay() {
        let known = || own_code(&counted(&[(1, 9), (2, 9), (3, 9)]));
        assert_eq!(cheapest(&counted(&[(1, 2), (2, 3)]), [known()].into_iter()), known());
        let often = counted(&[(1, 2), (2, 100_000)]);
        assert_eq!(cheapest(&often, [known()].into_iter()), own_code(&often));
        let unknown = counted(&[(4, 1)]);
        assert_eq!(cheapest(&unknown, [known()].into_iter()), own_code(&unknown));
    }
}
