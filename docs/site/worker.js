// Run workers in a frame where a page is opened from a file: browsers start no worker there, and search needs one.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.deliver(this, data);
      this.started = new Promise((resolve) => {
        const script = frame.contentDocument.createElement("script");
        script.src = new URL(address, location.href).href;
        script.onload = resolve;
        frame.contentDocument.body.append(script);
      });
    }
    postMessage(data) {
      this.started.then(() => this.deliver(this.inside, data));
    }
    deliver(target, data) {
      // As between threads: a copy, and later.
      const event = new MessageEvent("message", { data: structuredClone(data) });
      setTimeout(() => {
        target.dispatchEvent(event);
        if (target === this) this.onmessage?.(event);
      });
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
