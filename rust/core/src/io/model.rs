//! Reading and writing models.

use super::container::{Content, Reader, Tensor};
use super::entries::Entries;
use super::replace::replace;
use super::{BYTES, open, v1};
use crate::codebooks::Codebooks;
use crate::encode::{Encoding, Loss, Start};
use crate::error::Result;
use crate::model::{Centroids, Grouping, Model, Recipe, Structure, Subspaces};
use crate::vectors::basis::Directions;
use ndarray::{Array2, Array3};
use serde_json::Value;
use std::io::Cursor;
use std::path::Path;

/// The widest beam that a file may specify: a wider one could take unlimited memory.
const MAX_WIDTH: usize = 4096;
/// The most rounds of local search that a file may specify: more could take unlimited time.
const MAX_ROUNDS: usize = 1_000_000;

impl Model {
    /// Writes the model to `path`, replacing any existing file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let content = content(self)?;
        replace(path, |file| content.write(path, file, &()))
    }

    /// Reads a model; an index file works too.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is something else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Reader::new(path, open(path)?, &())?.model()
    }

    /// The bytes that [`save`](Self::save) writes.
    ///
    /// # Errors
    /// None are known to occur.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let content = content(self)?;
        let mut bytes = Vec::with_capacity(content.n_bytes());
        content.write(Path::new(BYTES), &mut bytes, &())?;
        Ok(bytes)
    }

    /// Reads bytes from [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// The bytes are damaged, or something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Reader::new(Path::new(BYTES), Cursor::new(bytes), &())?.model()
    }
}

fn content(model: &Model) -> Result<Content<'_>> {
    let (mut entries, mut tensors) = (Entries::new(), Vec::new());
    entries.insert("kind".to_owned(), "model".to_owned());
    describe(model, &mut entries, &mut tensors);
    Content::new(entries, tensors, &())
}

/// Adds the entries and tensors of a model.
pub(super) fn describe<'a>(model: &'a Model, entries: &mut Entries, tensors: &mut Vec<Tensor<'a>>) {
    let Recipe { loss, encoding, directions, structure, metric } = &model.recipe;
    let mut put = |name: &str, value: String| drop(entries.insert(name.to_owned(), value));
    put("selection", model.selection.name().to_owned());
    put("eta", loss.eta().to_string());
    if let Some(metric) = metric {
        put("trained_for", metric.name().to_owned());
    }
    match *encoding {
        Encoding::Greedy => put("encoder", "greedy".to_owned()),
        Encoding::Beam { width } => {
            put("encoder", "beam".to_owned());
            put("width", width.to_string());
        }
        Encoding::LocalSearch { start, rounds, seed } => {
            put("encoder", "local-search".to_owned());
            put("rounds", rounds.to_string());
            put("seed", seed.to_string());
            if let Start::Beam { width } = start {
                put("start_width", width.to_string());
            }
        }
    }
    let codebooks = &model.codebooks;
    let (m, k, d) = codebooks.view().dim();
    tensors.push(Tensor::new("codebooks", &[m, k, d], codebooks.as_slice()));
    if let Some(directions) = directions {
        let rows = directions.rows();
        let numbers = rows.to_slice().expect("of standard layout");
        tensors.push(Tensor::new("directions", rows.shape(), numbers));
    }
    match structure {
        Structure::Groups(grouping) => {
            put("structure", "groups".to_owned());
            let spaced =
                |counts: &[usize]| counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            put("groups", spaced(grouping.members()));
            if grouping.trunk() > 0 {
                put("trunk", grouping.trunk().to_string());
            }
            put("subspaces", spaced(grouping.sizes()));
            let basis = grouping.basis();
            let numbers = basis.to_slice().expect("of standard layout");
            tensors.push(Tensor::new("basis", basis.shape(), numbers));
        }
        Structure::Free => put("structure", "free".to_owned()),
        Structure::Signs => put("structure", "signs".to_owned()),
        Structure::Subspaces(subspaces) => {
            put("structure", "subspaces".to_owned());
            let sizes: Vec<String> = subspaces.sizes().iter().map(ToString::to_string).collect();
            put("subspaces", sizes.join(" "));
            if let Some(basis) = subspaces.basis() {
                let numbers = basis.to_slice().expect("of standard layout");
                tensors.push(Tensor::new("basis", basis.shape(), numbers));
            }
        }
    }
    if let Some(centroids) = &model.centroids {
        put("lists_eta", centroids.loss().eta().to_string());
        if !centroids.by_residual() {
            put("by_residual", "false".to_owned());
        }
        let n = centroids.n_lists();
        tensors.push(Tensor::new("centroids", &[n, d], centroids.as_slice()));
        tensors.push(Tensor::new("bonuses", &[n], centroids.bonuses()));
        tensors.push(Tensor::new("shares", &[n], centroids.shares()));
        let reach: Vec<f32> = centroids.reach().iter().flat_map(|&(n, share)| [n as f32, share]).collect();
        if !reach.is_empty() {
            tensors.push(Tensor::new("reach", &[reach.len() / 2, 2], reach));
        }
        let gaps: Vec<f32> = centroids.gaps().iter().flat_map(|&(gap, share)| [gap, share]).collect();
        if !gaps.is_empty() {
            tensors.push(Tensor::new("gaps", &[gaps.len() / 2, 2], gaps));
        }
    }
    if !model.parameters.is_empty() {
        put("parameters", Value::Object(model.parameters.clone()).to_string());
    }
}

impl Reader<'_> {
    pub(super) fn model(&self) -> Result<Model> {
        let Some((shape, values)) = self.floats("codebooks")? else {
            return Err(self.error("lacks codebooks"));
        };
        let &[m, k, d] = shape else {
            return Err(self.error(format!("codebooks have shape {shape:?}: want three dimensions")));
        };
        let data = Array3::from_shape_vec((m, k, d), values).expect("shape and values agree");
        let codebooks = self.blame(Codebooks::new(data))?;
        let selection = self.named("selection")?;
        self.blame(codebooks.check_selection(selection))?;
        let mut parameters = match self.optional::<Value>("parameters")? {
            None => serde_json::Map::new(),
            Some(Value::Object(parameters)) => parameters,
            Some(_) => return Err(self.error("parameters are not an object")),
        };
        let recipe = match self.version() {
            1 => self.blame(v1::recipe(&mut parameters, &codebooks))?,
            _ => self.recipe()?,
        };
        self.check(&recipe, &codebooks)?;
        let centroids = self.blame(self.centroids())?;
        if let Some(centroids) = &centroids {
            self.blame(centroids.check(&codebooks))?;
        }
        Ok(Model { codebooks, selection, recipe, parameters, centroids })
    }

    fn centroids(&self) -> Result<Option<Centroids>> {
        let Some(rows) = self.matrix("centroids")? else { return Ok(None) };
        let n = rows.nrows();
        let each = |name: &str| match self.floats(name)? {
            None => Err(self.error(format!("lacks {name}"))),
            Some((shape, _)) if shape != [n] => {
                Err(self.error(format!("{name} has shape {shape:?}: want [{n}], one for each list")))
            }
            Some((_, values)) => Ok(values),
        };
        let pairs = |name: &str| -> Result<Vec<(f32, f32)>> {
            let rows = self.matrix(name)?.unwrap_or_else(|| Array2::zeros((0, 2)));
            if rows.ncols() != 2 {
                return Err(self.error(format!("{name} has shape {:?}: want (…, 2)", rows.dim())));
            }
            Ok(rows.outer_iter().map(|row| (row[0], row[1])).collect())
        };
        let reach = pairs("reach")?.into_iter().map(|(n, share)| (n as usize, share)).collect();
        let centroids = Centroids::new(rows)?.with_loss(Loss::inner_product(self.value("lists_eta")?)?);
        let by_residual = self.optional("by_residual")?.unwrap_or(true);
        let centroids = if by_residual { centroids } else { centroids.of_whole() };
        let centroids = centroids.with_bonuses(each("bonuses")?)?.with_shares(each("shares")?)?;
        centroids.with_reach(reach)?.with_gaps(pairs("gaps")?).map(Some)
    }

    fn recipe(&self) -> Result<Recipe> {
        let encoding = match self.text("encoder")? {
            "greedy" => Encoding::Greedy,
            "beam" => Encoding::Beam { width: self.value("width")? },
            "local-search" => Encoding::LocalSearch {
                start: self.optional("start_width")?.map_or(Start::Greedy, |width| Start::Beam { width }),
                rounds: self.value("rounds")?,
                seed: self.value("seed")?,
            },
            other => {
                return Err(self.error(format!("encoder is {other:?}, which this release does not know")));
            }
        };
        let directions = self.matrix("directions")?.map(Directions::new).transpose();
        let structure = match self.text("structure")? {
            "free" => Structure::Free,
            "signs" => Structure::Signs,
            "groups" => {
                let (members, sizes) = (self.counts("groups")?, self.counts("subspaces")?);
                let basis = self.matrix("basis")?.ok_or_else(|| self.error("lacks a basis"))?;
                let grouping = self.blame(Grouping::new(members, sizes, basis))?;
                Structure::Groups(self.blame(grouping.with_trunk(self.optional("trunk")?.unwrap_or(0)))?)
            }
            "subspaces" => {
                let sizes = self.counts("subspaces")?;
                Structure::Subspaces(self.blame(Subspaces::new(sizes, self.matrix("basis")?))?)
            }
            other => {
                return Err(self.error(format!("structure is {other:?}, which this release does not know")));
            }
        };
        let loss = self.blame(Loss::inner_product(self.value("eta")?))?;
        let metric = if self.has("trained_for") { Some(self.named("trained_for")?) } else { None };
        Ok(Recipe { loss, encoding, directions: self.blame(directions)?, structure, metric })
    }

    /// Whole numbers separated by spaces.
    fn counts(&self, name: &str) -> Result<Vec<usize>> {
        let counts: std::result::Result<_, _> = self.text(name)?.split(' ').map(str::parse).collect();
        counts.map_err(|_| self.error(format!("{name} are not whole numbers")))
    }

    fn matrix(&self, name: &str) -> Result<Option<Array2<f32>>> {
        let Some((shape, values)) = self.floats(name)? else { return Ok(None) };
        let &[rows, columns] = shape else {
            return Err(self.error(format!("{name} have shape {shape:?}: want two dimensions")));
        };
        Ok(Some(Array2::from_shape_vec((rows, columns), values).expect("shape and values agree")))
    }

    /// Rejects a recipe that could not encode.
    fn check(&self, recipe: &Recipe, codebooks: &Codebooks) -> Result<()> {
        let widths = 1..=MAX_WIDTH;
        match recipe.encoding {
            Encoding::Beam { width } | Encoding::LocalSearch { start: Start::Beam { width }, .. }
                if !widths.contains(&width) =>
            {
                return Err(self.error(format!("the beam's width is {width}: want 1 to {MAX_WIDTH}")));
            }
            Encoding::LocalSearch { rounds, .. } if rounds > MAX_ROUNDS => {
                return Err(self.error(format!("rounds is {rounds}: want at most {MAX_ROUNDS}")));
            }
            _ => {}
        }
        self.blame(recipe.check(codebooks))
    }
}
