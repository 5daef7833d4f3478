// Search without a server: browsers start no worker for a page that was opened from a folder. A hidden frame does its
// work there. The theme would fetch such a stand-in from the network; make_site.py puts this one in its place.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(script) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const copy = structuredClone(data);
        setTimeout(() => this.onmessage?.(new MessageEvent("message", { data: copy })));
      };
      const element = inside.document.createElement("script");
      this.loaded = new Promise((resolve) => (element.onload = resolve));
      element.onerror = () => this.onerror?.(new Event("error", { cancelable: true }));
      element.src = new URL(script, location.href).href;
      inside.document.head.append(element);
    }
    postMessage(data) {
      const inside = this.frame.contentWindow;
      const copy = inside.structuredClone(data); // of the frame's own classes
      this.loaded.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data: copy })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
