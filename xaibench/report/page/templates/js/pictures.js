// Pictures on canvases: maps come as levels of gray, many side by side, and get their colors here.
const PALETTE = Uint8Array.from(atob(page.palette), (letter) => letter.charCodeAt(0));
const OUTLINE = "#00e5ff";
const SIDE = 176; // pixels of a canvas, at least

const pictures = new Map();

// A decoded picture; each is decoded once, when it is first shown.
function picture(uri) {
  if (!pictures.has(uri)) {
    const image = new Image();
    image.src = uri;
    pictures.set(uri, image.decode().then(() => image));
  }
  return pictures.get(uri);
}

// The pixels of a part of a picture.
function pixels(image, x, width) {
  const canvas = make("canvas", { width, height: image.naturalHeight });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(image, -x, 0);
  return context.getImageData(0, 0, width, image.naturalHeight);
}

function colored(levels) {
  const { width, height } = levels;
  const data = new ImageData(width, height);
  for (let i = 0; i < width * height; i += 1) {
    data.data.set(PALETTE.subarray(3 * levels.data[4 * i], 3 * levels.data[4 * i] + 3), 4 * i);
    data.data[4 * i + 3] = levels.data[4 * i + 3];
  }
  return onCanvas(data);
}

// Three orthogonal slices of a volume, whose slices are stacked from top to bottom: slice d, to its right column w, and
// below row h, with a transparent pixel between them.
function sliced(stack, [depth, height, width], [d, h, w]) {
  const view = new ImageData(width + 1 + depth, height + 1 + depth);
  const put = (x, y, slice, row, column) => {
    const from = 4 * ((slice * height + row) * stack.width + column);
    view.data.set(stack.data.subarray(from, from + 4), 4 * (y * view.width + x));
  };
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) put(x, y, d, y, x);
    for (let z = 0; z < depth; z += 1) put(width + 1 + z, y, z, y, w);
  }
  for (let z = 0; z < depth; z += 1) {
    for (let x = 0; x < width; x += 1) put(x, height + 1 + z, z, h, x);
  }
  return view;
}

function onCanvas(view) {
  const canvas = make("canvas", { width: view.width, height: view.height });
  canvas.getContext("2d").putImageData(view, 0, 0);
  return canvas;
}

// Size a canvas so that every pixel of a picture is a whole number of its own.
function sized(canvas, width, height) {
  const scale = Math.ceil(SIDE / Math.max(width, height));
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  return context;
}

function fill(context, image, alpha = 1) {
  context.globalAlpha = alpha;
  context.drawImage(image, 0, 0, context.canvas.width, context.canvas.height);
  context.globalAlpha = 1;
}

function isInside(mask, x, y) {
  return mask.data[4 * (y * mask.width + x)] > 127;
}

// The border of the ground truth, between its pixels and the others; the edge of the picture is no border.
function outline(context, mask) {
  const { width, height } = mask;
  const path = new Path2D();
  const sx = context.canvas.width / width;
  const sy = context.canvas.height / height;
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      const here = isInside(mask, x, y);
      if (x + 1 < width && here !== isInside(mask, x + 1, y)) {
        path.moveTo((x + 1) * sx, y * sy);
        path.lineTo((x + 1) * sx, (y + 1) * sy);
      }
      if (y + 1 < height && here !== isInside(mask, x, y + 1)) {
        path.moveTo(x * sx, (y + 1) * sy);
        path.lineTo((x + 1) * sx, (y + 1) * sy);
      }
    }
  }
  [["rgb(0 0 0 / .65)", 5], [OUTLINE, 2.5]].forEach(([color, width]) => {
    context.lineCap = "square";
    context.strokeStyle = color;
    context.lineWidth = width;
    context.stroke(path);
  });
}

// In words, where the largest value of a map lies.
function peak(levels, mask) {
  let best = 0;
  for (let i = 1; i < levels.width * levels.height; i += 1) {
    if (levels.data[4 * i] > levels.data[4 * best]) best = i;
  }
  if (levels.data[4 * best] === 0) return "the same value everywhere";
  const x = Math.floor((((best % levels.width) + 0.5) / levels.width) * mask.width);
  const y = Math.floor(((Math.floor(best / levels.width) + 0.5) / levels.height) * mask.height);
  return "largest " + (isInside(mask, x, y) ? "inside" : "outside") + " the ground truth";
}
