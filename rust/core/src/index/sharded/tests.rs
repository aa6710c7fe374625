use super::*;
use crate::codebooks::{Codebooks, Selection};
use crate::index::{Allowed, Reach, Settings, Within};
use crate::model::{Centroids, Model};
use crate::scan::Hits;
use crate::vectors::metric::Metric;
use ndarray::{Array3, s};

const LISTS: usize = 7;

/// A model whose scores tie often.
fn model(has_lists: bool) -> Model {
    let books = Array3::from_shape_fn((3, 8, 4), |(m, k, j)| ((m * 7 + k * 5 + j * 3) % 5) as f32 - 2.0);
    let mut model = Model::new(Codebooks::new(books).unwrap(), Selection::Group);
    if has_lists {
        let rows = Array2::from_shape_fn((LISTS, 4), |(i, j)| ((i * 5 + j * 3) % 7) as f32 - 3.0);
        let bonuses = (0..LISTS).map(|list| list as f32 / 8.0).collect();
        let centroids = Centroids::new(rows).unwrap().with_bonuses(bonuses).unwrap();
        model.centroids = Some(centroids.with_gaps(vec![(-1.0, 0.5), (0.5, 0.9), (3.0, 1.0)]).unwrap());
        model.recipe.metric = Some(Metric::InnerProduct);
    }
    model
}

fn codes(n: usize) -> (Array2<u8>, Vec<u32>, Vec<f32>) {
    let codes = Array2::from_shape_fn((n, 3), |(i, m)| ((i * (m + 3) + i / 7) % 8) as u8);
    let list = |i: usize| ((i * i + i / 11) % LISTS) as u32;
    (codes, (0..n).map(list).collect(), (0..n).map(|i| 0.5 + (i % 5) as f32 / 4.0).collect())
}

/// Vectors `from .. to` of `n` as a separate index.
fn some(has_lists: bool, settings: Settings, (from, to): (usize, usize), n: usize) -> Index {
    let mut index = Index::with(model(has_lists), settings).unwrap();
    let (codes, lists, side) = codes(n);
    let lists = has_lists.then(|| &lists[from..to]);
    let side = (settings.residuals || settings.scale).then(|| &side[from..to]);
    let codes = codes.slice(s![from..to, ..]);
    let change = index.prepare_add_codes_in(codes, lists, None, side, &()).unwrap();
    index.apply(change).unwrap();
    index
}

fn cut(has_lists: bool, settings: Settings, at: &[usize]) -> Shards {
    let n = at[at.len() - 1];
    let shard = |pair: &[usize]| {
        let index = some(has_lists, settings, (pair[0], pair[1]), n);
        Shard::new(Arc::new(index), pair[0] as i64, &[]).unwrap()
    };
    Shards::new(at.windows(2).map(shard).collect()).unwrap()
}

fn queries() -> Array2<f32> {
    Array2::from_shape_fn((5, 4), |(i, j)| ((i * 3 + j) % 4) as f32 - 1.5)
}

fn all_settings() -> Vec<Settings> {
    let of = |metric| Settings { metric, ..Settings::default() };
    let (ip, l2) = (of(Metric::InnerProduct), of(Metric::Euclidean));
    let more = [Settings { scale: true, ..ip }, Settings { residuals: true, ..ip }];
    [ip, l2, of(Metric::Cosine), Settings { exact_norms: false, ..l2 }].into_iter().chain(more).collect()
}

/// The same filters for one index and for shards.
fn filters(whole: &Index, shards: &Shards) -> Vec<(Option<Allowed>, Option<Allowed>)> {
    let n = whole.len();
    let mask: Vec<bool> = (0..n).map(|i| i * i % 13 < 4).collect();
    let marks = Array2::from_shape_fn((5, n), |(q, i)| (i + q) * (q + 3) % 17 < 3);
    let ids: Vec<i64> = (0..60i64).map(|i| i * 97 % 800).collect();
    let starts = [0, 3, 3, 20, 21, 60];
    let many: Vec<i64> = (0..2000i64).map(|i| i * 7 % 640).collect();
    let ends = [0, 500, 900, 901, 1999, 2000];
    let one = |allowed: Result<Allowed>| allowed.unwrap();
    let named = |index: &Index| one(index.allow_each(&starts, &ids, &()));
    let both = |index: &Index| named(index).inverse().unwrap().and(one(index.allow_mask(&mask, &())));
    let own_named = |index: &Shards| one(index.allow_each(&starts, &ids, &()));
    let own_both =
        |index: &Shards| own_named(index).inverse().unwrap().and(one(index.allow_mask(&mask, &())));
    let pairs = vec![
        (one(whole.allow_range(30..=650, 7, &())), one(shards.allow_range(30..=650, 7, &()))),
        (one(whole.allow_ids(&ids, &())), one(shards.allow_ids(&ids, &()))),
        (
            one(whole.allow_ids(&ids, &())).inverse().unwrap(),
            one(shards.allow_ids(&ids, &())).inverse().unwrap(),
        ),
        (one(whole.allow_mask(&mask, &())), one(shards.allow_mask(&mask, &()))),
        (named(whole), own_named(shards)),
        (one(whole.allow_each(&ends, &many, &())), one(shards.allow_each(&ends, &many, &()))),
        (one(whole.allow_each_mask(marks.view(), &())), one(shards.allow_each_mask(marks.view(), &()))),
        (one(both(whole)), one(own_both(shards))),
    ];
    let some = |(whole, shards)| (Some(whole), Some(shards));
    [(None, None)].into_iter().chain(pairs.into_iter().map(some)).collect()
}

fn check(whole: &Index, shards: &Shards, ks: &[usize]) {
    let queries = queries();
    let reaches = match shards.probes(queries.view(), Reach::DEFAULT, &()).unwrap() {
        Some(_) => vec![Reach::DEFAULT, Reach::Lists(1), Reach::Lists(3), Reach::All],
        None => vec![Reach::All],
    };
    let settings = whole.settings();
    for (i, (allowed, own)) in filters(whole, shards).iter().enumerate() {
        let (allowed, own) = (allowed.as_ref(), own.as_ref());
        for (&reach, &k) in reaches.iter().flat_map(|reach| ks.iter().map(move |k| (reach, k))) {
            let found = shards.search(queries.view(), k, Within { allowed: own, reach }, &()).unwrap();
            let want = whole.search_within(queries.view(), k, Within { allowed, reach }, &()).unwrap();
            assert_eq!(found, want, "{settings:?} filter {i} {reach:?} {k}");
        }
        let floors = [1.0, -1.0, 0.0, -30.0, 5.0];
        let found = shards.search_above(queries.view(), &floors, own, &()).unwrap();
        let want = whole.search_above(queries.view(), &floors, allowed, &()).unwrap();
        assert_eq!((found.starts, found.scores), (want.starts, want.scores), "filter {i}");
        let ids: Vec<i64> = found.ids.iter().map(|&position| shards.id(position)).collect();
        assert_eq!(ids, want.ids, "filter {i}");
        if settings.residuals {
            let (found, positions) = shards.certifiable_candidates(queries.view(), 9, own, &()).unwrap();
            let want = whole.certifiable_candidates(queries.view(), 9, allowed, &()).unwrap();
            assert_eq!(found.ids(), want.ids());
            assert!(positions.is_sorted());
            let vectors = Array2::from_shape_fn((want.ids().len(), 4), |(i, j)| ((i * 3 + j) % 5) as f32);
            let rerank = |candidates: &crate::index::Candidates| {
                let hits = candidates.rerank(queries.view(), &vectors.view(), 4, &()).unwrap();
                (candidates.certified(&hits), hits)
            };
            assert_eq!(rerank(&found), rerank(&want));
        }
    }
}

#[test]
fn shards_are_searched_as_one_index_ties_and_all() {
    for (settings, has_lists) in all_settings().into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let whole = some(has_lists, settings, (0, 700), 700);
        let shards = cut(has_lists, settings, &[0, 1, 1, 300, 300 + 64, 700]);
        check(&whole, &shards, &[1, 10, 800]);
    }
}

#[test]
fn what_is_removed_is_not_found() {
    let settings = Settings { residuals: true, ..Settings::default() };
    for has_lists in [false, true] {
        let mut whole = some(has_lists, settings, (0, 200), 200);
        let shards = cut(has_lists, settings, &[0, 70, 200]);
        let removed = [[3, 64, 69], [0, 64, 129]];
        let pruned = shards.shards.iter().zip(&removed);
        let pruned = pruned.map(|(s, gone)| Shard::new(s.index.clone(), s.offset, gone).unwrap()).collect();
        let pruned = Shards::new(pruned).unwrap();
        let gone = [3, 64, 69, 70, 134, 199];
        assert_eq!(pruned.find(&gone, &()).unwrap(), [-1; 6]);
        assert_eq!(pruned.find(&[4, 198], &()).unwrap(), [4, 198]);
        whole.remove(&gone, &()).unwrap();
        check(&whole, &pruned, &[1, 10, 200]);
        assert_eq!((pruned.len(), pruned.ids()), (194, whole.ids().unwrap().to_vec()));
        let approximations = pruned.reconstruct(&[0, 75, 1, 75], &()).unwrap();
        assert_eq!(approximations, whole.reconstruct(&[0, 75, 1, 75], &()).unwrap());
        assert_eq!(pruned.list_sizes(), whole.list_sizes());
    }
}

/// As the workers of a cluster do it, each of which sees some of the shards.
#[test]
fn runs_of_shards_that_search_as_many_lists_as_all_together_need_find_the_same() {
    let (at, k) = ([0, 150, 400, 420, 700], 40);
    let (whole, all) = (some(true, Settings::default(), (0, 700), 700), cut(true, Settings::default(), &at));
    let ids: Vec<i64> = (0..700).filter(|i| i % 9 == 0).collect();
    let reach = Reach::Lists(2);
    let allowed = whole.allow_ids(&ids, &()).unwrap();
    let want = whole.search_within(queries().view(), k, Within { allowed: Some(&allowed), reach }, &());
    let want = want.unwrap();
    let runs = [&all.shards[..2], &all.shards[2..]].map(|run| Shards::new(run.to_vec()).unwrap());
    let own: Vec<_> = runs.iter().map(|run| run.allow_ids(&ids, &()).unwrap()).collect();
    let counts: Vec<_> = runs
        .iter()
        .zip(&own)
        .map(|(run, own)| run.list_counts(queries().view(), Some(own), &()).unwrap())
        .collect();
    let counts = &counts[0] + &counts[1];
    let until = |row: ndarray::ArrayView1<'_, u32>| {
        let mut sum = 0;
        let enough = row.iter().position(|&count| {
            sum += count;
            sum as usize >= k
        });
        enough.map_or(LISTS, |at| (at + 1).max(2))
    };
    let ends: Vec<usize> = counts.outer_iter().map(until).collect();
    assert!(ends.iter().any(|&end| end > 2 && end < LISTS));
    let found: Vec<Hits> = runs
        .iter()
        .zip(&own)
        .map(|(run, own)| {
            let within = Within { allowed: Some(own), reach };
            run.search_positions(queries().view(), k, (within, Some(&ends)), &()).unwrap()
        })
        .collect();
    let rows = |hits: &Hits, q: usize, start: i64| -> Vec<(f32, i64)> {
        let pairs = hits.scores.row(q).to_vec().into_iter().zip(hits.positions.row(q).to_vec());
        pairs.filter(|&(_, position)| position >= 0).map(|(score, at)| (score, at + start)).collect()
    };
    for q in 0..5 {
        let mut merged = [rows(&found[0], q, 0), rows(&found[1], q, 400)].concat();
        merged.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        merged.truncate(k);
        assert_eq!(merged, rows(&want, q, 0));
    }
    let wrong = all.search_positions(queries().view(), 1, (reach.into(), Some(&[1])), &());
    assert!(wrong.is_err());
}

#[test]
fn keys_name_vectors_in_any_shard() {
    let part = |from: usize, to: usize| {
        let mut index = Index::new(model(false)).with_keys().unwrap();
        let keys: Vec<String> = (from..to).map(|i| format!("k{i}")).collect();
        let codes = codes(90).0;
        let codes = codes.slice(s![from..to, ..]);
        let change = index.prepare_add_keyed_codes_in(codes, None, &keys, None, &()).unwrap();
        index.apply(change).unwrap();
        Arc::new(index)
    };
    let (first, second) = (part(0, 30), part(20, 90));
    // The vectors that the second shard has too were removed from the first.
    let gone: Vec<i64> = (20..30).collect();
    let shards =
        Shards::new(vec![Shard::new(first.clone(), 0, &gone).unwrap(), Shard::new(second, 30, &[]).unwrap()])
            .unwrap();
    assert!(shards.has_keys() && shards.len() == 90);
    let found = shards.find_keys(&["k0", "k25", "k89", "none"], &()).unwrap();
    assert_eq!(found, [Some(0), Some(35), Some(99), None]);
    assert_eq!(shards.key(35), Some("k25"));
    assert!(shards.ids_of(&["none"], &()).unwrap_err().to_string().contains("none"));
    let mixed = vec![
        Shard::new(first, 0, &[]).unwrap(),
        Shard::new(Arc::new(some(false, Settings::default(), (0, 5), 5)), 90, &[]).unwrap(),
    ];
    assert!(Shards::new(mixed).is_err());
}

#[test]
fn shards_that_do_not_fit_are_refused() {
    let index = Arc::new(some(false, Settings::default(), (0, 10), 10));
    assert!(Shards::new(Vec::new()).is_err());
    assert!(Shard::new(index.clone(), -1, &[]).is_err());
    assert!(Shard::new(index.clone(), i64::MAX - 8, &[]).is_err());
    assert!(Shard::new(index.clone(), 0, &[10]).is_err());
    let other = Settings { metric: Metric::Cosine, ..Settings::default() };
    for other in [some(false, other, (0, 10), 10), some(true, Settings::default(), (0, 10), 10)] {
        let shards = [index.clone(), Arc::new(other)].map(|index| Shard::new(index, 0, &[]).unwrap());
        assert!(Shards::new(shards.to_vec()).is_err());
    }
    let shards = cut(false, Settings::default(), &[0, 4, 10]);
    let queries = queries();
    assert!(shards.search_above(queries.view(), &[0.0], None, &()).is_err());
    assert!(shards.certifiable_candidates(queries.view(), 3, None, &()).is_err());
    assert!(shards.list_counts(queries.view(), None, &()).is_err());
    assert!(shards.allow_mask(&[true; 9], &()).is_err());
}
